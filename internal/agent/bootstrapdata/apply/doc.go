// Package apply executes a bootstrapdata.Config on a host. The agent may be killed
// or the host may lose power at any time: the next Apply continues where the last
// one stopped.
//
// A Config becomes a list of steps. Each step is prepared, which only reads the host;
// then its intent is recorded in the Journal; then it is executed; then it is recorded
// as done. Executing with the recorded intent is idempotent: files are replaced as a
// whole, additions to a file are recognized by the hash of the result, and commands
// run only if they are still needed. The exceptions are the document's scripts and
// the start of its units: package script runs them exactly once. A unit is enabled
// only after it was started, so that the boot after a power cut does not start it a
// second time.
//
// The packages below hold the steps by subject: files, accounts, storage and units.
// Package host gives access to the host, package journal defines the records.
//
// Before a step creates or replaces something, the Manifest records it, with a copy of
// the earlier content. Undo reverts what the Manifest lists. The operation
// bootstrap and the command "elemental-agent apply" call this package.
package apply
