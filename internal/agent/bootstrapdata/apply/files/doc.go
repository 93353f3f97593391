// Package files writes the files, directories and links of bootstrap data. The
// other steps use File for every file that they write: it replaces the content
// as a whole and keeps a copy for undo.
package files
