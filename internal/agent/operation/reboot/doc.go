// Package reboot runs Reboot operations: the host reboots exactly once per operation, also
// if the agent is killed or power is cut meanwhile.
package reboot
