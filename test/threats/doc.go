// Package threats checks the tests of the threats that docs/security.md numbers.
// A test of threat 5 is called TestThreat05_…, wherever in the tree it is.
//
// The folder removals has one file for each mitigation: which lines to change to
// take it away. TestRemovals, with the build tag "removals" and a patience of some
// minutes (make threats), takes one away at a time, by Go's -overlay, and
// demands that a test of that threat fails. A file looks like this:
//
//	threat: 5
//	package: ./internal/server
//	-- internal/server/rotate.go --
//	the old lines
//	-- becomes --
//	the new lines
//
// Several changes may follow each other. The old lines must be in the file
// exactly once.
package threats
