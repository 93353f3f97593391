// Structure checks limits on the size of the source tree and the words in it:
//
//   - bytes per file, so that no built program is committed,
//   - lines per Go file,
//   - lines per package, without tests and generated files,
//   - methods per type, without generated files,
//   - retired identifiers and phrases, listed in retired.txt.
//
// `make verify` runs it. It reads the files that git tracks, prints one line for
// each violation and exits with status 1 if there is any.
package main
