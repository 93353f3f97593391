// Package guide reads the steps of docs/guide.md, so that tests count its commands and run them.
package guide
