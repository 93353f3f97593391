package workload_test

import (
	"net/http"
	"net/netip"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

// API servers of a site reset connections of others than its hosts, and say whose.
func TestSite(t *testing.T) {
	r := newRig(t, workload.Options{Site: true})
	first, second, none := r.machine(), r.machine(), r.machine()
	c := r.initialize(first, 0)
	other := r.initialize(second, 1)
	r.Expect(c.ready(first, first.Address)).To(Equal(http.StatusOK))
	r.Expect(c.ready(first, second.Address)).To(Equal(http.StatusOK))
	r.Expect(r.Strangers()).To(BeEmpty())

	machine := netip.MustParseAddr("127.0.0.1")
	r.Expect(c.ready(first, none.Address)).To(BeZero())
	r.Expect(other.ready(second, machine)).To(BeZero())
	r.Expect(r.Strangers()).To(Equal([]netip.Addr{none.Address, machine}))

	// Still so after the network was away.
	r.Network(first, false)
	r.Network(first, true)
	r.Expect(c.ready(first, second.Address)).To(Equal(http.StatusOK))
	r.Expect(c.ready(first, none.Address)).To(BeZero())
}
