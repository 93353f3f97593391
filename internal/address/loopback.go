//go:build !simulation

package address

// loopback permits loopback addresses as endpoints. Other hosts can't reach them, so
// released programs do not.
const loopback = false
