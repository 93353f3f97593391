// Package client speaks protocol to the manager.
//
// It trusts the CA certificates of its Options, never those of the system, and
// verification cannot be turned off. The host authenticates with its key, in a TLS client
// certificate. Servers are tried one after the other, beginning with the one that answered
// last. HTTP/2 pings detect a server that no longer answers.
//
// The host's clock may be wrong. A server's certificate is verified at the latest of the
// host's time, the build time of the program, and the servers' time (clock.go). If the
// certificate has expired by the host's clock only, it is verified without that clock.
package client
