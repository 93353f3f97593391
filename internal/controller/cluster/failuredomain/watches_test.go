package failuredomain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/failuredomain"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// The test changes hosts at random. If a change does not enqueue the cluster, its
// failure domains must be the same as before.
func TestNoChangeOfAFailureDomainIsMissed(t *testing.T) {
	g := NewWithT(t)
	c := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}}
	selectors, err := selector.NewCompiler()
	g.Expect(err).NotTo(HaveOccurred())
	constraints := []placement.Constraints{{ReservedFor: "c"}, {ReservedFor: "c", Selector: selectors.Compile(t.Context(), &infrav1.HostSelector{
		MatchLabels: infrav1.Labels{"tier": "gold"},
	})}, {ReservedFor: "c", Feasible: tunnelhost.Feasible}}
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	change := func(h *infrav1.ElementalHost) *infrav1.ElementalHost {
		h = h.DeepCopy()
		switch random.IntN(7) {
		case 0:
			h.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: one("", "a", "b", "c"), "tier": one("gold", "iron")}
		case 1:
			h.Spec.Claim = nil
			if cluster := one("", "c", "other"); cluster != "" {
				h.Spec.Claim = &infrav1.HostClaim{
					ID: "claim-" + h.Name, ClusterName: cluster, MachineName: "m-" + h.Name,
					Phase: infrav1.ClaimPhase(one(string(infrav1.ClaimBound), string(infrav1.ClaimReleasing), string(infrav1.ClaimHeld))),
					Role:  infrav1.ClaimRole(one(string(infrav1.RoleWorker), string(infrav1.RoleControlPlane))),
				}
			}
		case 2:
			h.Spec.Approval = infrav1.Approval(one(string(infrav1.ApprovalApproved), string(infrav1.ApprovalPending)))
		case 3:
			h.Status.Connection.State = infrav1.ConnectionState(one(string(infrav1.ConnectionConnected), string(infrav1.ConnectionDisconnected)))
		case 4:
			h.Status.Operations = []infrav1.HostOperation{{
				Type: infrav1.OperationReset, ID: "claim-" + h.Name, State: infrav1.OperationState(one(string(infrav1.OperationRunning), string(infrav1.OperationFailed))),
			}}
		case 5:
			h.Status.Agent = &infrav1.HostAgent{}
			if random.IntN(2) == 0 {
				h.Status.Agent.Capabilities = []string{string(protocol.CapabilityTunnel), string(protocol.CapabilityLocalEndpoint)}
			}
		default:
			h.Status.Addresses = nil
		}
		return h
	}
	ignored := 0
	for range 20000 {
		var hosts []*infrav1.ElementalHost
		for i := range 1 + random.IntN(6) {
			h := controllertest.FreeHost("", fmt.Sprintf("h%d", i), metav1.Now().Time)
			for range 3 {
				h = change(h)
			}
			hosts = append(hosts, h)
		}
		wanted, reserved, creates, inUse := constraints[random.IntN(3)], one("", "", "h1"), random.IntN(2) == 0, []string{one("a", "d")}
		before := failuredomain.FindIn(c, wanted, reserved, creates, inUse, hosts)
		after := slices.Clone(hosts)
		i := random.IntN(len(hosts))
		after[i] = change(hosts[i])
		is := after[i]
		if random.IntN(5) == 0 {
			after, is = slices.Delete(after, i, i+1), nil
		}
		if before.IsAffected(t.Context(), c, hosts[i], is) {
			continue
		}
		ignored++
		g.Expect(failuredomain.FindIn(c, wanted, reserved, creates, inUse, after).Published()).To(Equal(before.Published()))
	}
	g.Expect(ignored).To(BeNumerically(">", 5000), "most changes have no effect")
}
