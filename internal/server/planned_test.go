package server

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// A plan is made anew whatever it was made from has changed.
func TestPlanIsMadeAnewWhenSomethingChanged(t *testing.T) {
	g := NewWithT(t)
	type inputs struct {
		host    *infrav1.ElementalHost
		site    plan.Site
		cluster plan.Cluster
	}
	from := func(change func(*inputs)) planned {
		in := inputs{
			host: &infrav1.ElementalHost{}, cluster: plan.Cluster{Infra: &infrav1.ElementalCluster{}, KubernetesVersion: "v1"},
			site: plan.Site{Servers: []string{"https://a", "https://b"}, TrustBundle: "roots"},
		}
		in.host.UID, in.host.ResourceVersion = "h", "1"
		in.cluster.Infra.UID, in.cluster.Infra.ResourceVersion = "c", "1"
		change(&in)
		return plannedFrom(in.host, in.site, in.cluster)
	}
	key := types.NamespacedName{Namespace: "n", Name: "h"}
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := newPresence(c, time.Minute, newSchedule(c), func(types.NamespacedName) {})
	same := from(func(*inputs) {})
	p.planMade(key, same, "r1")
	g.Expect(p.revision(key, same)).To(BeEmpty(), "who has no session has no plan on record")
	p.seen(key)
	g.Expect(p.revision(key, same)).To(BeEmpty())
	p.planMade(key, same, "r1")
	g.Expect(p.revision(key, from(func(*inputs) {}))).To(Equal("r1"))
	for name, change := range map[string]func(*inputs){
		"host":                  func(in *inputs) { in.host.ResourceVersion = "2" },
		"another host":          func(in *inputs) { in.host.UID = "i" },
		"cluster":               func(in *inputs) { in.cluster.Infra.ResourceVersion = "2" },
		"another cluster":       func(in *inputs) { in.cluster.Infra.UID = "d" },
		"no cluster":            func(in *inputs) { in.cluster.Infra = nil },
		"another's cluster":     func(in *inputs) { in.cluster.Infra = &infrav1.ElementalCluster{} },
		"version":               func(in *inputs) { in.cluster.KubernetesVersion = "v2" },
		"another control plane": func(in *inputs) { in.cluster.OtherControlPlane = true },
		"servers":               func(in *inputs) { in.site.Servers = in.site.Servers[:1] },
		"roots":                 func(in *inputs) { in.site.TrustBundle = "other roots" },
		"agent":                 func(in *inputs) { in.site.Agent = &infrav1.AgentRelease{} },
	} {
		g.Expect(p.revision(key, from(change))).To(BeEmpty(), name)
	}
}
