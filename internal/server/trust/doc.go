// Package trust decides whether a host's key may call the agent API, rotates keys and
// locks hosts whose key is used by two machines.
//
// A host has up to three keys: the current one, the next one after it announced a
// rotation, and the former one. Current and next are accepted; the first use of the next
// key, except for a report, makes it current. The former key is kept only to detect copies: its use after a
// rotation proves that a second machine has it.
package trust
