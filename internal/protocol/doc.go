// Package protocol holds what the host agent and the agent API say to each
// other: paths, wire types and limits. It is the only thing the two sides
// share besides package identity, and it imports the standard library only.
//
// Compatibility: both sides ignore JSON fields they do not know, so a field
// may be added at any time. A type or meaning is never changed in place; an
// agent says what it can do in Hello.Capabilities, and it is sent no operation
// that it did not list.
//
// Authentication: every connection is TLS 1.3 with a client certificate. The
// certificate is self-signed and its dates and names mean nothing; the host is
// whoever holds the private key of Subject Public Key Info that the manager
// has on record. Errors are RFC 9457 problem details (Problem).
package protocol
