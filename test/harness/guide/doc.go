// Package guide reads the steps of a guide such as docs/guide.md, and the blocks of shell of any page, so
// that tests count their commands and run them.
package guide
