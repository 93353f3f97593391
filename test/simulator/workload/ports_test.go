package workload

import (
	"net"
	"testing"

	. "github.com/onsi/gomega"
)

// A Kubernetes of the machine's own is in the way, and that is said before anything begins.
func TestCheckPorts(t *testing.T) {
	g := NewWithT(t)
	all, err := net.Listen("tcp", ":0")
	g.Expect(err).NotTo(HaveOccurred())
	port := uint16(all.Addr().(*net.TCPAddr).Port)
	g.Expect(checkPorts(port)).To(MatchError(ContainSubstring("listens at port %d of all addresses", port)))
	g.Expect(all.Close()).To(Succeed())
	g.Expect(checkPorts(port)).To(Succeed())
}
