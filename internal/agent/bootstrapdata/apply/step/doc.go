// Package step defines a step of an operation and what all steps share: the
// Execution with the host and its journal, and the steps that run a program or a
// script. Packages files, accounts, storage and units hold the other steps.
//
// A step is prepared, which only reads the host, then recorded, then executed.
// Execute is repeated after a restart with the recorded Intent, so it must be
// idempotent.
package step
