package ports

import (
	"net"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
)

// many is enough to meet a reserved port by chance where nothing keeps it.
const many = 500

func TestReserve(t *testing.T) {
	g := NewWithT(t)
	var s Set
	t.Cleanup(s.Release)
	reserved := map[int]bool{}
	for range many {
		port, err := s.Reserve()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(reserved).NotTo(HaveKey(port), "chosen twice")
		reserved[port] = true
	}
	listeners := make([]net.Listener, 0, many)
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for range many {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		g.Expect(err).NotTo(HaveOccurred())
		listeners = append(listeners, l)
		g.Expect(reserved).NotTo(HaveKey(l.Addr().(*net.TCPAddr).Port), "given to a listener")
	}
}

// What programs do that are told the port.
func TestListenOnReserved(t *testing.T) {
	for _, host := range []string{"127.0.0.1", ""} {
		t.Run(host, func(t *testing.T) {
			g := NewWithT(t)
			var s Set
			t.Cleanup(s.Release)
			port, err := s.Reserve()
			g.Expect(err).NotTo(HaveOccurred())
			address := net.JoinHostPort(host, strconv.Itoa(port))
			// Twice: a program may be started again.
			for range 2 {
				l, err := net.Listen("tcp", address)
				g.Expect(err).NotTo(HaveOccurred())
				conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				g.Expect(err).NotTo(HaveOccurred(), "the reservation takes no connections")
				g.Expect(conn.Close()).To(Succeed())
				g.Expect(l.Close()).To(Succeed())
			}
		})
	}
}
