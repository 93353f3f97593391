package placement_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// running is a host that declares its Node. Its agent has found the files of the Node.
func running(cluster string, role infrav1.AdoptedRole) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Adoption = &infrav1.HostAdoption{ClusterName: cluster, Role: role}
		h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/etc/kubernetes"}}
		h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset", "Adopt"}}
	}
}

// adopter returns the constraints of a machine of the cluster shop.
func adopter(origin infrav1.ClusterOrigin, isControlPlane, isInitialized bool) placement.Constraints {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if isInitialized {
		cluster.Status.Initialization.ControlPlaneInitialized = new(true)
	}
	infra := &infrav1.ElementalCluster{Spec: infrav1.ElementalClusterSpec{Origin: origin}}
	return placement.Constraints{ReservedFor: "shop", Adoption: placement.NewAdoption(cluster, infra, isControlPlane)}
}

func TestThreat102_HostsOfAnAdoptedCluster(t *testing.T) {
	const controlPlane, worker = infrav1.AdoptedControlPlane, infrav1.AdoptedWorker
	first, later := adopter(infrav1.OriginAdopted, true, false), adopter(infrav1.OriginAdopted, true, true)
	joins := adopter(infrav1.OriginAdopted, false, true)
	away := func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }
	old := func(h *infrav1.ElementalHost) { h.Status.Agent.Capabilities = []string{"Bootstrap", "Reset"} }
	for name, tc := range map[string]struct {
		constraints placement.Constraints
		hosts       []*infrav1.ElementalHost
		// want is the name of the host, or the text that explains what is missing.
		want string
	}{
		"the declared host": {first, []*infrav1.ElementalHost{host("a"), host("b", running("shop", controlPlane))}, "b"},
		"that is reserved":  {first, []*infrav1.ElementalHost{host("b", running("shop", controlPlane), claimed("shop", infrav1.ClaimReserved))}, "b"},
		"no free host initializes a second control plane": {first, []*infrav1.ElementalHost{host("a")},
			"None of 1 hosts can be used: 1 not declared for adoption by the cluster"},
		"no worker's Node":                  {first, []*infrav1.ElementalHost{host("b", running("shop", worker))}, "None of 1 hosts can be used: 1 running a Node of another role"},
		"no Node of another cluster":        {first, []*infrav1.ElementalHost{host("b", running("mall", controlPlane))}, "None of 1 hosts can be used: 1 running a Node that belongs to another cluster"},
		"no agent that would bootstrap it":  {first, []*infrav1.ElementalHost{host("b", running("shop", controlPlane), old)}, "None of 1 hosts can be used: 1 with an agent that can't take over a Node"},
		"a worker, before free hosts":       {joins, []*infrav1.ElementalHost{host("a"), host("b", running("shop", worker))}, "b"},
		"waits for a declared host":         {joins, []*infrav1.ElementalHost{host("a"), host("b", running("shop", worker), away)}, "None of 2 hosts can be used: 1 AgentDisconnected, 1 not declared for adoption by the cluster"},
		"a free host when none is declared": {joins, []*infrav1.ElementalHost{host("a"), host("b", running("shop", controlPlane))}, "a"},
		"likewise the control plane":        {later, []*infrav1.ElementalHost{host("a"), host("b", running("shop", worker))}, "a"},
		"workers wait for the control plane": {adopter(infrav1.OriginAdopted, false, false), []*infrav1.ElementalHost{host("a")},
			"None of 1 hosts can be used: 1 not declared for adoption by the cluster"},
		"a bootstrapped cluster takes no Node over": {adopter(infrav1.OriginBootstrapped, true, false), []*infrav1.ElementalHost{host("a", running("shop", controlPlane)), host("b")}, "b"},
		"nor does a blank origin":                   {adopter("", false, true), []*infrav1.ElementalHost{host("a", running("shop", worker))}, "None of 1 hosts can be used: 1 running a Node that belongs to another cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for range 2 {
				constraints := tc.constraints.Among(tc.hosts)
				got := constraints.Explain(tc.hosts)
				if h := constraints.Pick(tc.hosts); h != nil {
					got = h.Name
				}
				g.Expect(got).To(Equal(tc.want))
				slices.Reverse(tc.hosts)
			}
		})
	}
}

// A host with a Node of its own counts for no other cluster, and a taken over one is like others.
func TestDeclaredHostsMatchNobodyElse(t *testing.T) {
	g := NewWithT(t)
	_, ok := placement.Constraints{}.Matches(host("a", running("shop", infrav1.AdoptedWorker)))
	g.Expect(ok).To(BeFalse())
	_, ok = placement.Constraints{}.Matches(host("a", running("shop", infrav1.AdoptedWorker), claimed("shop", infrav1.ClaimBound)))
	g.Expect(ok).To(BeTrue())
}
