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
	worker := protocol.Adoption{
		NodeName: "h1", ProviderID: "elemental://edge/h1", AuthorityHash: "sha256:1", Endpoint: "10.1.1.1:6443", Version: "v1.36.2",
	}
	controlPlane := worker
	controlPlane.ControlPlane = true
	labelled := func(h *infrav1.ElementalHost) {
		h.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: "zone-a"}
	}
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		want *protocol.Adoption
	}{
		"worker":            {able(infrav1.ClaimBound, labelled, adopting(infrav1.RoleWorker)), &worker},
		"control plane":     {able(infrav1.ClaimBound, labelled, adopting(infrav1.RoleInitialControlPlane)), &controlPlane},
		"bootstrapped host": {able(infrav1.ClaimBound, labelled), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := plan.Cluster{Infra: &infrav1.ElementalCluster{Spec: infrav1.ElementalClusterSpec{
				ControlPlaneEndpoint: infrav1.ControlPlaneEndpoint{Host: "10.1.1.1"},
				EtcdSnapshots:        &infrav1.EtcdSnapshots{},
			}}}
			if tc.want != nil {
				g.Expect(plan.For(tc.host, site, cluster).Operation).To(BeNil(), "the agent does not know adoptions")
				tc.host.Status.Agent.Capabilities = append(tc.host.Status.Agent.Capabilities, string(protocol.CapabilityAdopt))
			}
			p := plan.For(tc.host, site, cluster)
			g.Expect(p.Operation).NotTo(BeNil())
			g.Expect(p.Operation.Type).To(Equal(bootstrap))
			g.Expect(p.Operation.ID).To(Equal(tc.host.Spec.Claim.ID))
			g.Expect(p.Operation.Adoption).To(Equal(tc.want))
			desired := plan.For(able(""), site, plan.Cluster{}).Desired
			if tc.want != nil {
				g.Expect(p.Desired).To(Equal(desired), "as of a host without a Node")
			} else {
				g.Expect(p.Desired.Hostname + " " + p.Desired.ProviderID + " " + p.Desired.NodeLabels[infrav1.DefaultFailureDomainLabel]).
					To(Equal("h1 elemental://edge/h1 zone-a"))
			}
		})
	}
}
