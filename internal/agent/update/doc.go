// Package update keeps the agent's own program at the release that a plan pins.
//
// The binary is downloaded, in pieces if need be, and copied beside the
// program. Only if the copy's digest is the pinned one, it is made executable
// and asked for its version; only if that is the pinned one, and no older than
// the version that runs, it takes the program's place, and the process ends. It
// is then on trial: it has to reach the manager within TrialTime of running, or
// it puts the former program back by itself. One that doesn't get as far is put
// back by Guard, which the former program runs before each start.
//
// What happens in which order, each step durable before the next:
//
//	PATH.next       copied, verified, asked for its version
//	PATH.previous   a copy of the program that runs
//	update.json     Trial
//	PATH            replaced by PATH.next in one rename; the process ends
//	update.json     Confirmed, when the manager has answered; or Failed,
//	                and then PATH.previous is renamed to PATH
//
// The record goes before the rename, either way: whoever starts next sees from
// the digest of the program whether the rename took place, and does what is
// left. At every instant PATH is a whole program, and while update.json says
// Trial there is a whole PATH.previous.
package update
