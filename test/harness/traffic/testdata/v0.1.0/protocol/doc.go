// Package protocol defines the wire protocol between the host agent and the agent
// API: paths, types and limits. Agent and server share only this package, identity
// and tcp. It imports the standard library only.
//
// Compatibility: both sides ignore unknown JSON fields, so fields may be added at
// any time. The type or meaning of a field never changes. An agent lists what it
// can do in Hello.Capabilities, and receives no operation that it did not list.
//
// Authentication: every connection is TLS 1.3 with a client certificate. The
// certificate is self-signed, and its dates and names are ignored. The manager
// identifies a host by the fingerprint of its public key. Errors are RFC 9457
// problem details (Problem).
package protocol
