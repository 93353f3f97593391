// Package listener accepts TLS connections for the agent API. It bounds what callers can
// cost before they have proven to hold the key of a known host: the rate of new
// connections of each source, the concurrent handshakes and the unauthenticated
// connections of all sources and of each. It reads the PROXY protocol of the proxies that
// are configured, and of nobody else. It also issues the serving certificates.
//
// It checks that a client's key is of the right kind, and asks its caller whether the key is
// known. A client may have none; package api refuses it on all routes but those that install an
// agent. Package trust authenticates each HTTP request.
package listener
