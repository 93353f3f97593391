package platform

import "net"

// NetworkInterface is a network interface with its addresses.
type NetworkInterface struct {
	Name      string
	MAC       string
	Up        bool
	Addresses []*net.IPNet
}
