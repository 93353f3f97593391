// Package apply carries out a bootstrap.Config on a host, so that it can be
// killed or lose power at any instant and goes on where it was.
//
// A Config becomes a list of steps. Each is prepared, which only looks at the
// host, then recorded in the Journal, then executed, then recorded as done.
// Executing is idempotent given what was recorded: files are replaced as a
// whole, additions to a file are known by the hash of the result, commands are
// preceded by a look at whether they are still needed. The exceptions, which
// are the document's scripts and the start of its units, run exactly once by
// means of package script. A unit is enabled only after it was started, so that
// the boot that follows a power cut does not start it a second time.
//
// What the steps create or replace is recorded in a Manifest before it
// happens, with a copy of what was there, and Undo takes it back.
package apply
