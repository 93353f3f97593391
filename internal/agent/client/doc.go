// Package client speaks protocol to the manager.
//
// It trusts the roots it is given and no others: never those of the system,
// and there is no way to switch verification off. The host proves itself by
// its key, in a TLS client certificate. Several servers are tried in turn,
// beginning with the one that answered last. A connection on which the server
// has fallen silent is found out by HTTP/2 pings and given up.
//
// The host's clock may be wrong. A server's certificate is verified at the
// latest of the host's clock, the time at which the program was built and the
// time that a server told last; where the host's clock is so far ahead that the
// certificate has expired, it is verified at the latter two alone.
package client
