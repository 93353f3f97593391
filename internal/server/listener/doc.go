// Package listener accepts TLS connections for the agent API. It bounds what callers can
// cost before they have proven to hold the key of a known host: the rate of new
// connections of each source, the concurrent handshakes and the unauthenticated
// connections of all sources and of each. It reads the PROXY protocol of the proxies that
// are configured, and of nobody else. It also issues the serving certificates.
//
// It checks that the client has a key of the right kind, and asks its caller whether the
// key is known; package trust authenticates each HTTP request.
package listener
