// Package passthrough routes TLS connections to the API servers of workload clusters, by
// the server name of the ClientHello (RFC 6066, section 3). TLS is not terminated: caller
// and API server authenticate each other end to end.
//
// The package reads the ClientHello, asks a Router for a connection, sends the bytes that
// were read and then copies in both directions. A connection that is not routed is closed
// at a fixed time after it was accepted, whatever the reason: neither the time nor the
// answer shows whether a name is known.
package passthrough
