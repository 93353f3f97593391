// Package identity is what makes a host that host: a P-256 key of its own, and
// the registration token that lets the key in once. Agent and server share it;
// it imports the standard library only.
//
// The key travels in a self-signed TLS client certificate whose names and dates
// mean nothing, so a host that was off for two years simply reconnects and there
// is no certificate to renew. On record is only the key's Fingerprint.
package identity
