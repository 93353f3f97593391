// Package state keeps what the agent must not forget, whatever happens to the
// host: who it is, whom it trusts, what it was told, and what it ran.
//
// Every document is written to a temporary file, synchronised, renamed into
// place and its directory synchronised, so that after a power cut there is
// either the old document or the new one. A transition is durable when the
// method that makes it returns, and the agent acts on it only then.
//
// A document that cannot be read is an error that names the file. It is never
// replaced by an empty one: a host that forgot its key would come back as
// another host, and one that forgot its operations would run them again.
package state
