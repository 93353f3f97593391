// Package update keeps the agent's own program at the release that a plan pins. It is no
// operation: the run loop calls Updater.Ensure whenever no operation runs or is due.
//
// The binary is downloaded, in several parts if necessary, and copied to the program's
// folder. If the copy has the pinned digest, it is made executable and started to print
// its version. If that is the pinned version, and no older than the running one, the copy
// replaces the program and the process ends. The new program is then on trial: if it does
// not reach the manager within TrialTime, it rolls back to the former program. If it does
// not run that long, Guard rolls back; the former program runs Guard before each start.
//
// The order of the steps, each durable before the next:
//
//	PATH.next       copied, verified, asked for its version
//	PATH.previous   a copy of the program that runs
//	update.json     Trial
//	PATH            replaced by PATH.next in one rename; the process ends
//	update.json     Confirmed, when the manager has answered; or Failed,
//	                and then PATH.previous is renamed to PATH
//
// The record is always written before the rename. The next start sees from the digest of
// PATH whether the rename took place, and completes it. PATH is a complete program at any
// time, and PATH.previous is complete while the phase in update.json is Trial.
package update
