package server

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// planned is what a host's plan was made from, and its revision. A poll that begins
// anew mostly asks for the same: making the plan of a control-plane host
// with kube-vip's manifest takes a millisecond.
type planned struct {
	host, infra             state
	infraKnown, others      bool
	version, bundle, server string
	// agent is the registration's own: another one if anything in it has changed.
	agent    *infrav1.AgentRelease
	revision string
}

// state is an object in a state.
type state struct {
	uid     types.UID
	version string
}

// plannedFrom returns what a plan is made from, without its revision.
func plannedFrom(host *infrav1.ElementalHost, site plan.Site, cluster plan.Cluster) planned {
	from := planned{
		host: state{host.UID, host.ResourceVersion}, infraKnown: cluster.Infra != nil, others: cluster.OtherControlPlane,
		version: cluster.KubernetesVersion, bundle: site.TrustBundle, server: strings.Join(site.Servers, " "), agent: site.Agent,
	}
	if cluster.Infra != nil {
		from.infra = state{cluster.Infra.UID, cluster.Infra.ResourceVersion}
	}
	return from
}

// revision returns the revision of the plan that was made from the same, blank if
// none was.
func (p *presence) revision(host types.NamespacedName, from planned) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[host]
	if s == nil {
		return ""
	}
	from.revision = s.planned.revision
	if s.planned != from {
		return ""
	}
	return from.revision
}

// planMade takes note of a plan.
func (p *presence) planMade(host types.NamespacedName, from planned, revision string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[host]; s != nil {
		from.revision = revision
		s.planned = from
	}
}
