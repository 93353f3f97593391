//go:build simulation

package address

// loopback is true in the manager that test/embedded builds for hosts that are all
// on one machine. No released program is built with this tag.
const loopback = true
