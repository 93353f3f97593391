package placement_test

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

const zone = infrav1.DefaultFailureDomainLabel

func host(name string, changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Spec:       infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved},
		Status: infrav1.ElementalHostStatus{
			Connection:  &infrav1.HostConnection{State: infrav1.ConnectionConnected},
			Cleanliness: &infrav1.HostCleanliness{State: infrav1.CleanlinessClean},
		},
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

func label(key, value string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) { h.Labels[key] = value }
}

func claimed(cluster string, phase infrav1.ClaimPhase) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "id", MachineName: "m", ClusterName: cluster, Phase: phase}
	}
}

func TestPick(t *testing.T) {
	away := func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }
	for name, tc := range map[string]struct {
		constraints placement.Constraints
		hosts       []*infrav1.ElementalHost
		want        string
	}{
		"first by name":   {placement.Constraints{}, []*infrav1.ElementalHost{host("b"), host("a"), host("c")}, "a"},
		"first available": {placement.Constraints{}, []*infrav1.ElementalHost{host("b"), host("a", away)}, "b"},
		"own reservation first": {placement.Constraints{ReservedFor: "c"},
			[]*infrav1.ElementalHost{host("a"), host("z", claimed("c", infrav1.ClaimReserved))}, "z"},
		"not reserved for another cluster": {placement.Constraints{ReservedFor: "c"},
			[]*infrav1.ElementalHost{host("a", claimed("d", infrav1.ClaimReserved)), host("z")}, "z"},
		"no reserved host without ReservedFor": {placement.Constraints{},
			[]*infrav1.ElementalHost{host("a", claimed("", infrav1.ClaimReserved)), host("b", claimed("c", infrav1.ClaimReserved))}, ""},
		"not a held host": {placement.Constraints{ReservedFor: "c"}, []*infrav1.ElementalHost{host("a", claimed("c", infrav1.ClaimHeld))}, ""},
		"not a host that a machine of the cluster has claimed": {placement.Constraints{ReservedFor: "c"},
			[]*infrav1.ElementalHost{host("a", claimed("c", infrav1.ClaimBound)), host("b", claimed("c", infrav1.ClaimReleasing))}, ""},
		"reserved, but not usable": {placement.Constraints{ReservedFor: "c"},
			[]*infrav1.ElementalHost{host("a", claimed("c", infrav1.ClaimReserved), away), host("b")}, "b"},
		"reserved, but not matching": {placement.Constraints{ReservedFor: "c", FailureDomain: "x", FailureDomainLabel: zone},
			[]*infrav1.ElementalHost{host("a", claimed("c", infrav1.ClaimReserved))}, ""},
		"pin":                         {placement.Constraints{HostName: "b"}, []*infrav1.ElementalHost{host("a"), host("b")}, "b"},
		"pin that can't be used":      {placement.Constraints{HostName: "b"}, []*infrav1.ElementalHost{host("a"), host("b", away)}, ""},
		"strict failure domain":       {placement.Constraints{FailureDomain: "x", FailureDomainLabel: zone}, []*infrav1.ElementalHost{host("a", label(zone, "y")), host("b")}, ""},
		"failure domain":              {placement.Constraints{FailureDomain: "x", FailureDomainLabel: zone}, []*infrav1.ElementalHost{host("a", label(zone, "y")), host("b", label(zone, "x"))}, "b"},
		"failure domain, other label": {placement.Constraints{FailureDomain: "x", FailureDomainLabel: "rack"}, []*infrav1.ElementalHost{host("a", label(zone, "x")), host("b", label("rack", "x"))}, "b"},
		"an image of Elemental OS": {placement.Constraints{OSImage: true}, []*infrav1.ElementalHost{host("a"), host("b", cores(1)), host("c", func(h *infrav1.ElementalHost) {
			h.Status.Inventory = &infrav1.HostInventory{OS: infrav1.HostOS{Image: "oci://registry/os:1"}}
		})}, "c"},
		"none": {placement.Constraints{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for range 2 {
				got := ""
				if h := tc.constraints.Pick(tc.hosts); h != nil {
					got = h.Name
				}
				g.Expect(got).To(Equal(tc.want))
				slices.Reverse(tc.hosts)
			}
		})
	}
}

func expression(t *testing.T, text string) placement.Constraints {
	t.Helper()
	return placement.Constraints{Selector: (*selector.Compiler)(nil).Compile(t.Context(), &infrav1.HostSelector{Expression: text})}
}

func cores(n int32) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: n}}
	}
}

func TestSelector(t *testing.T) {
	g := NewWithT(t)
	r := expression(t, "host.inventory.cpu.cores >= 8")
	hosts := []*infrav1.ElementalHost{host("a"), host("b", cores(4)), host("c", cores(8)), host("d", cores(2))}
	g.Expect(r.Pick(hosts)).To(BeIdenticalTo(hosts[2]))
	g.Expect(r.Explain(hosts[:2])).To(Equal("None of 2 hosts can be used: 1 not matching, 1 with unknown inventory"))
	reason, ok := r.Available(hosts[0])
	g.Expect(ok).To(BeFalse())
	g.Expect(reason).To(Equal(placement.InventoryUnknown))
}

// An expression that admission did not check selects nothing, and the message says why.
func TestSelectorThatCantBeCompiled(t *testing.T) {
	g := NewWithT(t)
	r := expression(t, "host.inventory.cpu.corez >= 8")
	hosts := []*infrav1.ElementalHost{host("a", cores(8))}
	g.Expect(r.Pick(hosts)).To(BeNil())
	const want = "No host can be selected: compiling hostSelector.expression: line 1, column 19: undefined field 'corez'; make another template or machine"
	g.Expect(r.Explain(hosts)).To(Equal(want))
	g.Expect(r.Explain(nil)).To(Equal(want))
}

func TestSelectorThatIsTooExpensive(t *testing.T) {
	g := NewWithT(t)
	h := host("a", cores(8))
	for i := range 64 {
		h.Status.Inventory.NICs = append(h.Status.Inventory.NICs, infrav1.HostNIC{Name: "n", Addresses: make([]string, 64)})
		h.Status.Inventory.Disks = append(h.Status.Inventory.Disks, infrav1.HostDisk{Name: "d", SizeBytes: int64(i)})
	}
	hosts := slices.Repeat([]*infrav1.ElementalHost{h}, 1000)
	r := expression(t, "host.inventory.nics.exists(n, n.addresses.exists(a, a == 'b'))")
	g.Expect(r.Pick(hosts)).To(BeNil())
	g.Expect(r.Explain(hosts)).To(Equal("None of 1000 hosts can be used: 1000 " + placement.NotEvaluated))
}

// Hosts that nobody has approved, or that lost their admission, are not evaluated: the
// largest inventories of any number of them do not use up the cost limit.
func TestThreat57_StrangersDoNotUseUpTheCostLimit(t *testing.T) {
	strangers := map[string]func(*infrav1.ElementalHost){
		infrav1.PendingApprovalReason: func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending },
		infrav1.RejectedReason:        func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
		infrav1.IdentityClonedReason:  func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
		infrav1.FencedReason:          func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} },
		infrav1.DeletingReason:        func(h *infrav1.ElementalHost) { h.DeletionTimestamp = new(metav1.NewTime(time.Unix(1000, 0))) },
	}
	for why, change := range strangers {
		t.Run(why, func(t *testing.T) {
			g := NewWithT(t)
			honest := host("z", cores(8))
			honest.Status.Inventory.NICs = []infrav1.HostNIC{{Name: "n", Addresses: []string{"b"}}}
			stranger := host("a", cores(8), change)
			for range 64 {
				stranger.Status.Inventory.NICs = append(stranger.Status.Inventory.NICs, infrav1.HostNIC{Name: "n", Addresses: make([]string, 64)})
			}
			hosts := append(slices.Repeat([]*infrav1.ElementalHost{stranger}, 1000), honest)
			r := expression(t, "host.inventory.nics.exists(n, n.addresses.exists(a, a == 'b'))")
			g.Expect(r.Pick(hosts)).To(BeIdenticalTo(honest))
			reason, ok := r.Matches(stranger)
			g.Expect(ok).To(BeFalse())
			g.Expect(reason).To(Equal(why))
			honest.Spec.Claim = &infrav1.HostClaim{Phase: infrav1.ClaimBound}
			g.Expect(r.Explain(hosts)).To(Equal("None of 1001 hosts can be used: 1 Claimed, 1000 " + why))
		})
	}
}

func TestUnavailableReasons(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	for want, change := range map[string]func(*infrav1.ElementalHost){
		infrav1.PendingApprovalReason: func(h *infrav1.ElementalHost) { h.Spec.Approval = "" },
		infrav1.RejectedReason:        func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
		infrav1.NeverConnectedReason:  func(h *infrav1.ElementalHost) { h.Status.Connection = nil },
		infrav1.DisconnectedReason:    func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected },
		infrav1.NotReportedReason:     func(h *infrav1.ElementalHost) { h.Status.Cleanliness = nil },
		infrav1.LeftoversReason:       func(h *infrav1.ElementalHost) { h.Status.Cleanliness.State = infrav1.CleanlinessDirty },
		infrav1.CordonedReason:        func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} },
		infrav1.MaintenanceReason:     func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"} },
		infrav1.QuarantinedReason: func(h *infrav1.ElementalHost) {
			h.Spec.Quarantine = &infrav1.HostQuarantine{Reason: "failed", Until: now, Failures: 2}
		},
		infrav1.FencedReason:         func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} },
		infrav1.IdentityClonedReason: func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} },
		infrav1.DeletingReason:       func(h *infrav1.ElementalHost) { h.DeletionTimestamp = &now },
	} {
		t.Run(want, func(t *testing.T) {
			g := NewWithT(t)
			reason, ok := placement.Constraints{}.Available(host("a", change))
			g.Expect(ok).To(BeFalse())
			g.Expect(reason).To(Equal(want))
			reason, ok = placement.Constraints{ReservedFor: "c"}.Available(host("a", claimed("c", infrav1.ClaimReserved), change))
			g.Expect(ok).To(BeFalse(), "the same holds for a reserved host")
			g.Expect(reason).To(Equal(want))
		})
	}
	g := NewWithT(t)
	_, ok := placement.Constraints{}.Available(host("a"))
	g.Expect(ok).To(BeTrue())
}

// Only an administrator's labels count. No report of a host can attract a workload.
func TestThreat07_WorkloadIsNotAttractedByWhatAHostSays(t *testing.T) {
	g := NewWithT(t)
	const key, value = "tier", "payments"
	boast := func(h *infrav1.ElementalHost) {
		text := key + "=" + value
		h.Spec.Hostname = value
		h.Annotations = map[string]string{key: value}
		h.Status.Inventory = &infrav1.HostInventory{Architecture: text}
		h.Status.Agent = &infrav1.HostAgent{Version: text, Capabilities: []string{text, value}}
		h.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: value}}
	}
	r := placement.Constraints{Selector: (*selector.Compiler)(nil).Compile(t.Context(), &infrav1.HostSelector{MatchLabels: infrav1.Labels{key: value}})}
	liar, honest := host("a", boast), host("b", label(key, value))
	g.Expect(r.Pick([]*infrav1.ElementalHost{liar, honest})).To(BeIdenticalTo(honest))
	reason, ok := r.Available(liar)
	g.Expect(ok).To(BeFalse())
	g.Expect(reason).To(Equal(placement.NotMatching))
	r = placement.Constraints{FailureDomain: value, FailureDomainLabel: key}
	g.Expect(r.Pick([]*infrav1.ElementalHost{liar})).To(BeNil(), "a host can't report its own failure domain")
}

func TestExplain(t *testing.T) {
	g := NewWithT(t)
	r := placement.Constraints{FailureDomain: "x", FailureDomainLabel: zone}
	g.Expect(r.Explain(nil)).To(ContainSubstring("enrol hosts"))
	hosts := []*infrav1.ElementalHost{
		host("a"), host("b", label(zone, "y")), host("c", label(zone, "x"), claimed("d", infrav1.ClaimBound)), host("d", label(zone, "x"), claimed("d", infrav1.ClaimReserved)),
	}
	const want = "None of 4 hosts can be used: 1 Claimed, 1 ReservedForCluster, 2 in another failure domain"
	g.Expect(r.Explain(hosts)).To(Equal(want))
	slices.Reverse(hosts)
	g.Expect(r.Explain(hosts)).To(Equal(want), "in any order of hosts")
}
