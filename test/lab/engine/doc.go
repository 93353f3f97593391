// Package engine prepares Docker on this machine and runs lab hosts in it: containers with systemd that act like
// machines. They keep their disk over a reboot, lose /run and /tmp, can be cut from power or from the network, and are
// found by label, so that whatever a crashed run left behind can be removed.
package engine
