package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
)

// portAttempts is the number of addresses to try before a port counts as taken on all of them;
// another program may use a single address.
const portAttempts = 3

// checkPorts returns an error if another program, such as a Kubernetes on this machine, listens at
// one of the ports of all addresses. Virtual hosts could not listen at that port.
func checkPorts(ports ...uint16) error {
	for _, port := range ports {
		var err error
		for range portAttempts {
			address := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250)), 254})
			var l *net.TCPListener
			if l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, port))); err == nil {
				_ = l.Close()
				break
			}
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("a program, perhaps a Kubernetes, listens at port %d of all addresses of this machine: "+
				"stop it, or configure it to listen at one address: %w", port, err)
		}
		if err != nil {
			return fmt.Errorf("listening at port %d of the loopback: %w", port, err)
		}
	}
	return nil
}
