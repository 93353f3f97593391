package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A Node is taken over by a Bootstrap that says so, and only an agent that knows it is asked: any
// other would run bootstrap data on the host.
func TestThreat102_OnlyAgentsThatKnowAdoptions(t *testing.T) {
	adopting := func(role infrav1.ClaimRole) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Spec.Claim.Role = role
			h.Spec.Claim.Adoption = &infrav1.ClaimAdoption{AuthorityHash: "sha256:1", Endpoint: "10.1.1.1:6443", Version: "v1.36.2"}
		}
	}
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		want *protocol.Adoption
	}{
		"worker": {able(infrav1.ClaimBound, adopting(infrav1.RoleWorker)),
			&protocol.Adoption{AuthorityHash: "sha256:1", Endpoint: "10.1.1.1:6443", Version: "v1.36.2"}},
		"control plane": {able(infrav1.ClaimBound, adopting(infrav1.RoleInitialControlPlane)),
			&protocol.Adoption{ControlPlane: true, AuthorityHash: "sha256:1", Endpoint: "10.1.1.1:6443", Version: "v1.36.2"}},
		"bootstrapped host": {able(infrav1.ClaimBound), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if tc.want != nil {
				unable := plan.For(tc.host, site, plan.Cluster{Infra: &infrav1.ElementalCluster{}})
				g.Expect(unable.Operation).To(BeNil(), "the agent does not know adoptions")
				g.Expect(unable.Desired.Hostname+unable.Desired.ProviderID).To(BeEmpty(), "such an agent would apply them")
				tc.host.Status.Agent.Capabilities = append(tc.host.Status.Agent.Capabilities, string(protocol.CapabilityAdopt))
			}
			tc.host.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: "zone-a"}
			p := plan.For(tc.host, site, plan.Cluster{Infra: &infrav1.ElementalCluster{}})
			op := p.Operation
			g.Expect(p.Desired.Hostname).To(Equal(tc.host.Name))
			g.Expect(p.Desired.ProviderID).NotTo(BeEmpty())
			g.Expect(p.Desired.NodeLabels == nil).To(Equal(tc.want != nil), "nothing else is desired of a Node that is not taken over")
			g.Expect(op).NotTo(BeNil())
			g.Expect(op.Type).To(Equal(bootstrap))
			g.Expect(op.ID).To(Equal(tc.host.Spec.Claim.ID))
			g.Expect(op.Adoption).To(Equal(tc.want))
		})
	}
}
