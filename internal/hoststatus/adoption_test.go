package hoststatus_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// What a declared Node has on its host is no obstacle. Everything else is, as for other hosts.
func TestHostsWithADeclaredNode(t *testing.T) {
	declared := func(h *infrav1.ElementalHost) {
		h.Spec.Adoption = &infrav1.HostAdoption{ClusterName: "shop", Role: infrav1.AdoptedWorker}
	}
	cordoned := func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "disk"} }
	for name, tc := range map[string]struct {
		host   *infrav1.ElementalHost
		reason string
		ok     bool
	}{
		"declared":                         {host(dirty, declared), infrav1.AdoptableReason, true},
		"before the agent has looked":      {host(declared, func(h *infrav1.ElementalHost) { h.Status.Cleanliness = nil }), infrav1.AdoptableReason, true},
		"not declared":                     {host(dirty), infrav1.LeftoversReason, false},
		"disconnected":                     {host(dirty, declared, disconnected), infrav1.DisconnectedReason, false},
		"cordoned":                         {host(dirty, declared, cordoned), infrav1.CordonedReason, false},
		"rejected":                         {host(dirty, declared, rejected), infrav1.RejectedReason, false},
		"claimed":                          {host(dirty, declared, claim(infrav1.ClaimBound)), infrav1.ClaimedReason, false},
		"being reset, though in git":       {host(dirty, declared, claim(infrav1.ClaimReleasing)), infrav1.ResettingReason, false},
		"reserved for its own cluster":     {host(dirty, declared, claim(infrav1.ClaimReserved)), infrav1.ReservedReason, false},
		"maintained, whatever it declares": {host(dirty, declared, maintenance), infrav1.MaintenanceReason, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verdict := hoststatus.Available(tc.host)
			g.Expect(verdict.Reason()).To(Equal(tc.reason))
			g.Expect(verdict.IsTrue()).To(Equal(tc.ok))
			if tc.ok {
				g.Expect(verdict.Message()).To(ContainSubstring("Cluster shop"))
			}
		})
	}
	g := NewWithT(t)
	g.Expect(hoststatus.Usable(host(dirty, declared, claim(infrav1.ClaimReserved))).IsTrue()).To(BeTrue())
}
