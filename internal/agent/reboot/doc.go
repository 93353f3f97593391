// Package reboot runs Reboot operations: the host reboots once per operation,
// whatever is killed or loses power meanwhile. It depends on nothing but the
// agent's run loop and its store.
package reboot
