//go:build simulation

package address

// loopback is true in the manager that test/harness/embedded builds, whose hosts all run on
// one machine. No released program is built with this tag.
const loopback = true
