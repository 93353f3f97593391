package workload

import (
	"net"
	"testing"

	. "github.com/onsi/gomega"
)

// A program that listens at all addresses is reported before the simulation starts.
func TestCheckPorts(t *testing.T) {
	g := NewWithT(t)
	all, err := net.Listen("tcp", ":0")
	g.Expect(err).NotTo(HaveOccurred())
	port := uint16(all.Addr().(*net.TCPAddr).Port)
	g.Expect(checkPorts(port)).To(MatchError(ContainSubstring("listens at port %d of all addresses", port)))
	g.Expect(all.Close()).To(Succeed())
	// Another program may listen at a free port by now; it does not listen at all of them.
	g.Eventually(func() error { return checkPorts(freePort(g)) }).Should(Succeed())
}

func freePort(g Gomega) uint16 {
	l, err := net.Listen("tcp", ":0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = l.Close() }()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}
