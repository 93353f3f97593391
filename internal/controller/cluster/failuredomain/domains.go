package failuredomain

import (
	"cmp"
	"context"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// maxDomains is the number of failure domains that Cluster API permits.
const maxDomains = 100

// rule derives a cluster's failure domains from hosts.
type rule struct {
	label, cluster string
	// constraints of the control plane's machines, if known.
	constraints placement.Constraints
	known       bool
	// reservedHost is the host that the first machine has to claim; onlyReserved means
	// that no other host may serve the control plane.
	reservedHost string
	onlyReserved bool
	// creates means that the control plane creates a Machine next. Then only failure
	// domains with a place for it are published for the control plane.
	creates bool
	// inUse are the failure domains of control-plane Machines.
	inUse []string
}

// domain is one failure domain.
type domain struct {
	// place is the best place for a control-plane machine that a host offers.
	place place
	// host is a host in the domain that offers place; blank if a control-plane Machine
	// alone keeps the domain.
	host string
	// inUse: a control-plane Machine is in the domain.
	inUse bool
	// controlPlane: the domain is published for the control plane.
	controlPlane bool
}

// domains are the failure domains of a cluster, and the rule that they follow from.
type domains struct {
	rule

	byName map[string]domain
}

// apply returns the failure domains of the hosts, by name. It is pure.
func (r rule) apply(hosts []*infrav1.ElementalHost) map[string]domain {
	found := map[string]domain{}
	for _, host := range hosts {
		name := host.Labels[r.label]
		if name == "" || !isAdmitted(host) || !r.mayClaim(host) {
			continue
		}
		former, listed := found[name]
		current := domain{place: r.placeOn(host), host: host.Name}
		// Hosts are claimed in the order of their names, so the last one stays longest.
		if !listed || current.place > former.place || (current.place == former.place && current.host > former.host) {
			found[name] = current
		}
	}
	for _, name := range r.inUse {
		used := found[name]
		used.inUse = true
		found[name] = used
	}
	r.selectForControlPlane(found)
	return found
}

// selectForControlPlane sets controlPlane of each failure domain.
//
// If the control plane creates a Machine next, it gets the failure domains in which a
// host can be claimed at once; without any, those with a free host that can't be claimed
// now; without any, those that its Machines are in. Otherwise it may delete a Machine
// next, and Cluster API deletes Machines outside the published failure domains first: so
// it gets those with a free host and those that its Machines are in.
func (r rule) selectForControlPlane(found map[string]domain) {
	best := noPlace
	for _, d := range found {
		best = max(best, d.place)
	}
	for name, d := range found {
		switch {
		case !r.creates:
			d.controlPlane = d.inUse || d.place > noPlace
		case best > noPlace:
			d.controlPlane = d.place == best
		default:
			d.controlPlane = d.inUse
		}
		found[name] = d
	}
}

// published returns the failure domains sorted by name. Above the limit those of the
// control plane take precedence.
func (d domains) published() []clusterv1.FailureDomain {
	list := make([]clusterv1.FailureDomain, 0, len(d.byName))
	for name, found := range d.byName {
		list = append(list, clusterv1.FailureDomain{Name: name, ControlPlane: new(found.controlPlane)})
	}
	byName := func(a, b clusterv1.FailureDomain) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(list, func(a, b clusterv1.FailureDomain) int {
		if *a.ControlPlane != *b.ControlPlane {
			if *a.ControlPlane {
				return -1
			}
			return 1
		}
		return byName(a, b)
	})
	list = list[:min(len(list), maxDomains)]
	slices.SortFunc(list, byName)
	if len(list) == 0 {
		return nil
	}
	return list
}

// mayAdd reports whether a host that the cluster may claim adds a failure domain, or
// offers a better place in one.
func (d domains) mayAdd(ctx context.Context, host *infrav1.ElementalHost) bool {
	found, listed := d.byName[host.Labels[d.label]]
	offered := d.offeredBy(host)
	switch {
	case !listed:
		return true
	case offered <= found.place || (found.controlPlane && !d.creates):
		return false
	default:
		why, matches := d.constraints.WithContext(ctx).Matches(host)
		return matches || why == placement.NotEvaluated
	}
}

// dependsOn reports whether a failure domain may change if the host is gone.
func (d domains) dependsOn(host *infrav1.ElementalHost) bool {
	return d.byName[host.Labels[d.label]].host == host.Name
}
