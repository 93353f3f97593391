package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
)

// tries is how many addresses are tried before a port counts as taken: one may be somebody else's.
const tries = 3

// checkPorts tells early, and so that it is understood, that a program of this machine listens at a port of every
// address, as its own Kubernetes may. No virtual host could listen there then.
func checkPorts(ports ...uint16) error {
	for _, port := range ports {
		var err error
		for range tries {
			address := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250)), 254})
			var l *net.TCPListener
			if l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, port))); err == nil {
				_ = l.Close()
				break
			}
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("a program listens at port %d of all addresses of this machine, perhaps a Kubernetes of its own: "+
				"stop it, or have it listen at an address of its own: %w", port, err)
		}
		if err != nil {
			return fmt.Errorf("listening at port %d of the loopback: %w", port, err)
		}
	}
	return nil
}
