//go:build !simulation

package address

// loopback is whether an address of the loopback can be an endpoint's: to others
// it is their own.
const loopback = false
