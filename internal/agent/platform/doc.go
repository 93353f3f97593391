// Package platform is the agent's port to the operating system: Platform and
// the small interfaces that it consists of. The run loop and the operations
// use these interfaces and no operating system directly.
//
// Implementations are in packages below this one: linux for any Linux with
// systemd; elemental adds what differs on Elemental OS. Virtual hosts of tests
// implement Platform as well. This package contains no code that touches a
// host.
package platform
