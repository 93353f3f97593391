package session

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// A plan is computed again after a change of any of its inputs.
func TestPlanRevisionDependsOnAllInputs(t *testing.T) {
	g := NewWithT(t)
	type inputs struct {
		host    *infrav1.ElementalHost
		site    plan.Site
		cluster plan.Cluster
	}
	with := func(change func(*inputs)) PlanInputs {
		in := inputs{
			host: &infrav1.ElementalHost{}, cluster: plan.Cluster{Infra: &infrav1.ElementalCluster{}, KubernetesVersion: "v1"},
			site: plan.Site{Servers: []string{"https://a", "https://b"}, TrustBundle: "roots"},
		}
		in.host.UID, in.host.ResourceVersion = "h", "1"
		in.cluster.Infra.UID, in.cluster.Infra.ResourceVersion = "c", "1"
		change(&in)
		return PlanInputsOf(in.host, in.site, in.cluster)
	}
	f := newFixture(t)
	unchanged := with(func(*inputs) {})
	f.SetPlanRevision(host, unchanged, "r1")
	g.Expect(f.PlanRevision(host, unchanged)).To(BeEmpty(), "a host without a session has no last plan")
	f.Expect(host)
	g.Expect(f.PlanRevision(host, unchanged)).To(BeEmpty())
	f.SetPlanRevision(host, unchanged, "r1")
	g.Expect(f.PlanRevision(host, with(func(*inputs) {}))).To(Equal("r1"))
	for name, change := range map[string]func(*inputs){
		"host":                         func(in *inputs) { in.host.ResourceVersion = "2" },
		"new host of the same name":    func(in *inputs) { in.host.UID = "i" },
		"cluster":                      func(in *inputs) { in.cluster.Infra.ResourceVersion = "2" },
		"new cluster of the same name": func(in *inputs) { in.cluster.Infra.UID = "d" },
		"no cluster":                   func(in *inputs) { in.cluster.Infra = nil },
		"cluster of another provider":  func(in *inputs) { in.cluster.Infra = &infrav1.ElementalCluster{} },
		"version":                      func(in *inputs) { in.cluster.KubernetesVersion = "v2" },
		"another control plane":        func(in *inputs) { in.cluster.OtherControlPlane = true },
		"pause":                        func(in *inputs) { in.cluster.Paused = true },
		"API servers":                  func(in *inputs) { in.cluster.Backends = []string{"192.0.2.1:6443"} },
		"fallback":                     func(in *inputs) { in.cluster.Fallback = true },
		"hosts of a restored cluster":  func(in *inputs) { in.cluster.ProviderIDs = []string{"elemental://ns/a"} },
		"servers":                      func(in *inputs) { in.site.Servers = in.site.Servers[:1] },
		"CA certificates":              func(in *inputs) { in.site.TrustBundle = "other roots" },
		"successor":                    func(in *inputs) { in.site.Successor = &infrav1.RegistrationSuccessor{} },
		"missing registration":         func(in *inputs) { in.site.UnknownRegistration = true },
		"agent":                        func(in *inputs) { in.site.Agent = &infrav1.AgentRelease{} },
	} {
		g.Expect(f.PlanRevision(host, with(change))).To(BeEmpty(), name)
	}
}
