// Package build makes a bundle from a folder. Scan decides where each file belongs on hosts,
// and reads it for its digest; Write then writes the bundle. The result depends on names,
// contents and whether files are executable or private, and on nothing else: not on times,
// owners, the umask or the order in which a file system lists files.
package build
