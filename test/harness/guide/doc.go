// Package guide reads the steps of a guide such as docs/guide.md, so that tests count its commands
// and run them.
package guide
