// Package identity makes and verifies host keys and registration tokens. A host's
// identity is its P-256 key; a token permits the key's enrolment. Agent and server
// share this package. It imports the standard library only.
//
// The key is presented in a self-signed TLS client certificate whose names and dates
// are ignored. It never has to be renewed, so a host that was off for two years can
// reconnect. The manager stores only the key's Fingerprint.
package identity
