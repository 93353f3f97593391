// Package threats checks the tests of the threats that docs/security.md numbers.
// A test of threat 5 is called TestThreat05_…, wherever in the tree it is.
//
// The folder removals has a file for each way to remove a mitigation: which lines to
// change. TestRemovals (make threats; build tag "removals"; less than an hour) removes one at
// a time, by Go's -overlay, and demands that a test of that threat fails.
// TestMitigationsAreRemoved demands a file for each mitigation that docs/security.md claims.
// A file looks like this:
//
//	threat: 5
//	mitigation: the proofs of a copy lock the host
//	package: ./internal/server
//	-- internal/server/trust/rotation.go --
//	the old lines
//	-- becomes --
//	the new lines
//
// Several changes may follow each other. The old lines must be in the file
// exactly once.
package threats
