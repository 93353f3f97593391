// Package state stores what the agent needs after a restart or a power cut: the host's
// key and identity, the trusted servers, the last plan, and the operations that were
// begun.
//
// Each document is written to a temporary file, synced, renamed into place, and its
// directory synced. After a power cut either the old or the new document exists. A change
// is durable when the method that makes it returns; the agent acts on it only then.
//
// A document that cannot be read is an error. It is never replaced by an empty one: a host
// without its key would enrol as another host, and one without its operations would run
// them again.
package state
