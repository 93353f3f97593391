// Package address decides which address of a host is meant: for an endpoint that
// is a host's address, and whether a certificate covers it. It is pure.
package address
