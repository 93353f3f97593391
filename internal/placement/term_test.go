package placement_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// FirstTerm agrees with Available, and says what it is about the host.
func TestFirstTerm(t *testing.T) {
	compiler, err := selector.NewCompiler()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	matching := compiler.Compile(t.Context(), &infrav1.HostSelector{MatchLabels: infrav1.Labels{"rack": "r1"}})
	cores := compiler.Compile(t.Context(), &infrav1.HostSelector{Expression: "host.inventory.cpu.cores > 4"})
	away := func(h *infrav1.ElementalHost) {
		h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionDisconnected, Since: metav1.Unix(0, 0)}
	}
	for name, tc := range map[string]struct {
		constraints placement.Constraints
		host        *infrav1.ElementalHost
		want        placement.Term
	}{
		"available": {placement.Constraints{}, host("a"), placement.Term{}},
		"pinned": {placement.Constraints{HostName: "b"}, host("a"),
			placement.Term{Reason: placement.NotMatching, Field: "hostName", Message: "spec.hostName is b"}},
		"label": {placement.Constraints{Selector: matching}, host("a"),
			placement.Term{Reason: placement.NotMatching, Field: "labels", Message: "wanted label rack=r1, the host has no label rack"}},
		"inventory": {placement.Constraints{Selector: cores}, host("a"),
			placement.Term{Reason: placement.InventoryUnknown, Message: "the expression reads the inventory, and the agent has not reported it"}},
		"failure domain": {placement.Constraints{FailureDomain: "x", FailureDomainLabel: zone}, host("a", label(zone, "y")),
			placement.Term{Reason: placement.WrongFailureDomain, Message: "wanted " + zone + "=x, the host has y"}},
		"no failure domain": {placement.Constraints{FailureDomain: "x", FailureDomainLabel: zone}, host("a"),
			placement.Term{Reason: placement.WrongFailureDomain, Message: "wanted " + zone + "=x, the host has no such label"}},
		"verdict": {placement.Constraints{}, host("a", away),
			placement.Term{Reason: infrav1.DisconnectedReason, Message: "The agent has not been heard of since 1970-01-01T00:00:00Z"}},
		"labels before the state": {placement.Constraints{Selector: matching}, host("a", away),
			placement.Term{Reason: placement.NotMatching, Field: "labels", Message: "wanted label rack=r1, the host has no label rack"}},
		"reserved for the cluster": {placement.Constraints{ReservedFor: "c"}, host("a", claimed("c", infrav1.ClaimReserved), away),
			placement.Term{Reason: infrav1.DisconnectedReason, Message: "The agent has not been heard of since 1970-01-01T00:00:00Z"}},
		"not prepared": {placement.Constraints{Preflight: &preflight.Need{}}, host("a", swapping),
			placement.Term{Reason: infrav1.NotPreparedReason,
				Message: "Swap is on, and kubelets refuse to start with it: run swapoff -a, and remove swap from /etc/fstab; " +
					"net.ipv4.ip_forward is 0: set it to 1, and name it in /etc/sysctl.d"}},
		"swap does not matter": {placement.Constraints{}, host("a", swapping), placement.Term{}},
		"feasible": {placement.Constraints{Feasible: func(*infrav1.ElementalHost) (string, bool) { return "without wheels", false }}, host("a"),
			placement.Term{Reason: "without wheels"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			term, ok := tc.constraints.FirstTerm(tc.host)
			g.Expect(term).To(Equal(tc.want))
			reason, available := tc.constraints.Available(tc.host)
			g.Expect([]any{term.Reason, ok}).To(Equal([]any{reason, available}))
		})
	}
}

func TestFailureDomainLabel(t *testing.T) {
	g := NewWithT(t)
	c := &infrav1.ElementalCluster{}
	g.Expect(placement.FailureDomainLabel(nil)).To(Equal(infrav1.DefaultFailureDomainLabel))
	g.Expect(placement.FailureDomainLabel(c)).To(Equal(infrav1.DefaultFailureDomainLabel))
	c.Spec.FailureDomains.HostLabel = "rack"
	g.Expect(placement.FailureDomainLabel(c)).To(Equal("rack"))
}

func swapping(h *infrav1.ElementalHost) {
	h.Status.Inventory = &infrav1.HostInventory{Preflight: &infrav1.HostPreflight{
		Swap: infrav1.FeatureEnabled, IPForwarding: infrav1.FeatureDisabled, FreeBytes: 2 << 30,
	}}
}
