// Package tunnels knows which hosts have a tunnel, and dials through them. Table holds the
// tunnels. Reviewer decides which host may have one: when the host opens it, and again after
// each event on which that depends. It also derives status.tunnel of the hosts.
package tunnels
