// Package engine prepares Docker on this machine and runs lab hosts in it: containers with systemd
// that behave like machines. Hosts keep their disk over a reboot and lose /run and /tmp. Their
// power and network can be cut. They are found by label, so that the remains of a crashed run can
// be removed.
package engine
