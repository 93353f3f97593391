package hoststatus

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// Available reports whether machines can claim the host. It evaluates spec and facts, not
// conditions, so it is also correct for a host whose status was not restored.
func Available(host *infrav1.ElementalHost) Verdict {
	if v := Admitted(host); !v.IsTrue() {
		return v
	}
	// Maintenance comes first, because it explains everything else about the host.
	if host.InMaintenance() {
		return maintained(host)
	}
	if claim := host.Spec.Claim; claim != nil {
		return claimed(host, claim)
	}
	return Usable(host)
}

// Usable reports whether the host could be used, ignoring its claim.
func Usable(host *infrav1.ElementalHost) Verdict {
	if v := Admitted(host); !v.IsTrue() {
		return v
	}
	if host.Spec.Claim == nil && host.IsReturning() {
		return no(infrav1.HostReturningReason, "The host goes back to namespace %s, which had granted it", host.Spec.GrantedFrom.Namespace)
	}
	if host.InMaintenance() {
		return maintained(host)
	}
	if v := connected(host); v.status != metav1.ConditionTrue {
		return v
	}
	if v := clean(host); v.status != metav1.ConditionTrue && !host.IsAdoptable() {
		return v
	}
	if q := host.Spec.Quarantine; q != nil {
		return no(infrav1.QuarantinedReason, "%s; offered again at %s, or when spec.quarantine is removed", q.Reason, q.Until.UTC().Format(timeFormat))
	}
	if c := host.Spec.Cordon; c != nil {
		return no(infrav1.CordonedReason, "spec.cordon: %s", c.Reason)
	}
	if plan.Paused(host) {
		return no(clusterv1.PausedReason, "The host is paused")
	}
	if host.IsAdoptable() {
		return Verdict{metav1.ConditionTrue, infrav1.AdoptableReason, runsNode(host)}
	}
	return yes(infrav1.AvailableReason)
}

// runsNode describes a host whose Node no Machine has taken over yet.
func runsNode(host *infrav1.ElementalHost) string {
	return "The host runs a Node of Cluster " + host.Spec.Adoption.ClusterName + ", which a Machine of it can take over"
}

// maintained returns the verdict for a host in maintenance.
func maintained(host *infrav1.ElementalHost) Verdict {
	m := host.Spec.Maintenance
	until := "spec.maintenance is removed"
	if !m.Until.IsZero() {
		until = m.Until.UTC().Format(timeFormat)
	}
	return no(infrav1.MaintenanceReason, "spec.maintenance: %s; until %s", m.Reason, until)
}

// Admitted reports whether the host is approved, and neither locked, fenced nor being
// deleted. Only an administrator can change that.
func Admitted(host *infrav1.ElementalHost) Verdict {
	if to := host.Spec.GrantedTo; to != nil {
		return no(infrav1.HostGrantedReason, "The host is ElementalHost %s in namespace %s, by ElementalHostGrant %s (%s). If it is lost there for ever, remove spec.grantedTo",
			to.Name, to.Namespace, to.GrantName, to.Phase)
	}
	if !host.DeletionTimestamp.IsZero() {
		return no(infrav1.DeletingReason, "The host is being deleted")
	}
	return approved(host)
}

// claimed returns the verdict for a claimed host.
func claimed(host *infrav1.ElementalHost, claim *infrav1.HostClaim) Verdict {
	switch claim.Phase {
	case infrav1.ClaimReserved:
		return no(infrav1.ReservedReason, "Reserved for the control plane of Cluster %s", claim.ClusterName)
	case infrav1.ClaimHeld:
		return held(claim)
	case infrav1.ClaimReleasing:
		if v := clean(host); v.status != metav1.ConditionTrue {
			return v
		}
		return no(infrav1.WaitingForMachineGone, "The host is clean; waiting until Machine %s is gone", claim.MachineName)
	default:
		return no(infrav1.ClaimedReason, "The host belongs to Machine %s of Cluster %s", claim.MachineName, claim.ClusterName)
	}
}

// ready returns the verdict of the condition Ready. `kubectl get` shows its reason in the
// column State.
func ready(host *infrav1.ElementalHost) Verdict {
	if v := Admitted(host); !v.IsTrue() {
		return v
	}
	claim := host.Spec.Claim
	if claim != nil && claim.Phase == infrav1.ClaimReleasing {
		return claimed(host, claim)
	}
	// During maintenance, failures of the host do not count. The other conditions and the
	// ElementalMachine still show them.
	if host.InMaintenance() {
		return maintained(host)
	}
	if claim != nil && claim.Phase == infrav1.ClaimHeld {
		return held(claim)
	}
	if claim != nil && claim.Phase == infrav1.ClaimBound {
		if c := meta.FindStatusCondition(host.Status.Conditions, infrav1.MachineExistsCondition); c != nil && c.Status == metav1.ConditionFalse {
			return no(c.Reason, "%s", c.Message)
		}
		if v := bootstrapped(host); v.status != metav1.ConditionTrue {
			return v
		}
	}
	if v := connected(host); v.status != metav1.ConditionTrue {
		return v
	}
	switch {
	case claim == nil:
		return Usable(host)
	case claim.Phase == infrav1.ClaimReserved:
		return yes(infrav1.ReservedReason)
	default:
		return yes(infrav1.ProvisionedReason)
	}
}

// IsTrue reports whether the Verdict is positive.
func (v Verdict) IsTrue() bool { return v.status == metav1.ConditionTrue }

// Reason returns the reason, as in a condition.
func (v Verdict) Reason() string { return v.reason }

// Message returns the message for people.
func (v Verdict) Message() string { return v.message }

// IsReset reports whether the host is releasing, was reset for its claim, and is clean.
func IsReset(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return claim != nil && claim.Phase == infrav1.ClaimReleasing && clean(host).IsTrue()
}
