// Package threats checks the tests of the threats that docs/security.md numbers.
// A test of threat 5 is called TestThreat05_…, wherever in the tree it is.
//
// The folder removals has one file for each mitigation: which lines to change to
// remove it. TestRemovals (make threats; build tag "removals"; some minutes) removes one
// mitigation at a time, by Go's -overlay, and
// demands that a test of that threat fails. A file looks like this:
//
//	threat: 5
//	package: ./internal/server
//	-- internal/server/trust/rotation.go --
//	the old lines
//	-- becomes --
//	the new lines
//
// Several changes may follow each other. The old lines must be in the file
// exactly once.
package threats
