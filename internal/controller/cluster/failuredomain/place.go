package failuredomain

import (
	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// place says what a host offers to a control-plane machine. A greater place is better.
type place int

const (
	// noPlace: the host is in use or held, or can't serve the control plane.
	noPlace place = iota
	// laterPlace: the host is free, but can't be claimed before something changes: it is
	// disconnected, cordoned or in maintenance.
	laterPlace
	// placeNow: the host can be claimed now, or it is being reset and is free soon.
	placeNow
)

// placeOn returns the place that the host offers to machines of the control plane.
func (r rule) placeOn(host *infrav1.ElementalHost) place {
	offered := r.offeredBy(host)
	if offered == noPlace {
		return noPlace
	}
	if _, matches := r.constraints.Matches(host); !matches {
		return noPlace
	}
	return offered
}

// offeredBy is placeOn without the constraints. Hosts of workers don't serve the control
// plane.
func (r rule) offeredBy(host *infrav1.ElementalHost) place {
	claim := host.Spec.Claim
	if !r.known || (claim != nil && claim.Role == infrav1.RoleWorker) || (r.onlyReserved && host.Name != r.reservedHost) {
		return noPlace
	}
	return offer(host)
}

// offer returns the place that the host offers to any machine that may claim it.
func offer(host *infrav1.ElementalHost) place {
	if !isAdmitted(host) {
		return noPlace
	}
	claim, usable := host.Spec.Claim, hoststatus.Usable(host).IsTrue()
	switch {
	case claim != nil && claim.Phase == infrav1.ClaimReleasing:
		// A host that is not connected may never return.
		if placement.IsReturning(host) {
			return placeNow
		}
		return noPlace
	case claim != nil && claim.Phase != infrav1.ClaimReserved:
		return noPlace
	case usable:
		return placeNow
	default:
		return laterPlace
	}
}

// isAdmitted reports whether the host is approved, and neither locked, fenced nor
// being deleted.
func isAdmitted(host *infrav1.ElementalHost) bool { return hoststatus.Admitted(host).IsTrue() }

// mayClaim reports whether the host is free or claimed for the cluster.
func (r rule) mayClaim(host *infrav1.ElementalHost) bool {
	return host.Spec.Claim == nil || host.Spec.Claim.ClusterName == r.cluster
}
