// Package oscommand runs programs of the operating system, such as systemctl,
// nft and ip. The platforms, the endpoint applier and the operations use it. It
// knows none of these programs. Probe runs programs that may be anything.
package oscommand
