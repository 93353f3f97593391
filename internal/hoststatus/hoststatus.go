package hoststatus

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const timeFormat = "2006-01-02T15:04:05Z"

// Update sets all conditions of the host from its spec, metadata and reported facts. now
// becomes the transition time of conditions whose status changes. Unless the claim is
// Bound or Held, Update also removes status.endpoint, status.certificates,
// status.etcdSnapshots and status.etcdSnapshotUpload, and status.bundle too if it is not of the bundle in spec.
func Update(host *infrav1.ElementalHost, now metav1.Time) {
	if !host.IsBoundOrHeld() {
		host.Status.Endpoint, host.Status.EtcdSnapshots, host.Status.EtcdSnapshotUpload, host.Status.Certificates = nil, nil, nil, nil
	}
	if !host.IsBoundOrHeld() || host.StagedBundle() == nil {
		host.Status.Bundle = nil
	}
	if host.IsHandedOver() {
		host.Status.Connection, host.Status.KeyFingerprint, host.Status.Tunnel = nil, "", nil
	}
	set := func(conditionType string, v Verdict) {
		meta.SetStatusCondition(&host.Status.Conditions, metav1.Condition{
			Type:               conditionType,
			Status:             v.status,
			Reason:             v.reason,
			Message:            v.message,
			ObservedGeneration: observedGeneration(host, conditionType, v),
			LastTransitionTime: now,
		})
	}
	set(infrav1.ConnectedCondition, connected(host))
	set(infrav1.ApprovedCondition, approved(host))
	set(infrav1.CleanCondition, clean(host))
	set(infrav1.BootstrappedCondition, bootstrapped(host))
	set(infrav1.AvailableCondition, Available(host))
	set(infrav1.PreparedCondition, prepared(host))
	// Without a verdict the condition is absent.
	setKnown := func(conditionType string, v Verdict) {
		if v == (Verdict{}) {
			meta.RemoveStatusCondition(&host.Status.Conditions, conditionType)
			return
		}
		set(conditionType, v)
	}
	setKnown(infrav1.ClockSynchronizedCondition, clockSynchronized(host))
	setKnown(infrav1.AgentCurrentCondition, agentCurrent(host))
	setKnown(infrav1.CertificatesValidCondition, certificatesValid(host, now.Time))
	set(clusterv1.PausedCondition, paused(host))
	set(infrav1.ReadyCondition, ready(host))
}

// observedGeneration returns the former generation for a condition that did not change.
// Otherwise each change of a spec would cost a status write. Ready always has the newest
// generation.
func observedGeneration(host *infrav1.ElementalHost, conditionType string, v Verdict) int64 {
	if conditionType == infrav1.ReadyCondition {
		return host.Generation
	}
	old := meta.FindStatusCondition(host.Status.Conditions, conditionType)
	if old != nil && old.Status == v.status && old.Reason == v.reason && old.Message == v.message {
		return old.ObservedGeneration
	}
	return host.Generation
}

// Verdict is the status, reason and message of a condition. The zero value means that the
// condition is absent.
type Verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason string) Verdict { return Verdict{metav1.ConditionTrue, reason, ""} }

func no(reason, format string, args ...any) Verdict {
	return Verdict{metav1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
}

func unknown(reason, message string) Verdict {
	return Verdict{metav1.ConditionUnknown, reason, message}
}

func connected(host *infrav1.ElementalHost) Verdict {
	switch c := host.Status.Connection; {
	case host.IsHandedOver():
		return unknown(infrav1.HostGrantedReason, "The agent connects as an ElementalHost of another namespace")
	case c == nil:
		return no(infrav1.NeverConnectedReason, "The agent has not connected yet")
	case c.State == infrav1.ConnectionConnected:
		return yes(infrav1.ConnectedReason)
	default:
		return no(infrav1.DisconnectedReason, "The agent has not been heard of since %s",
			c.Since.UTC().Format(timeFormat))
	}
}

func approved(host *infrav1.ElementalHost) Verdict {
	lock, fence := host.Spec.Lock, host.Spec.Fence
	switch {
	case host.Spec.Approval == infrav1.ApprovalRejected:
		return no(infrav1.RejectedReason, "spec.approval is Rejected: the host is refused")
	case lock != nil:
		return no(infrav1.IdentityClonedReason, "Two machines use this host's key%s. Destroy the copy, then remove spec.lock; "+
			"where it can't be told which is the copy, clear spec.identity.keyFingerprint as well, with spec.identity.match given",
			after(": ", lock.Message))
	case host.Spec.Approval != infrav1.ApprovalApproved:
		return pending(host)
	case fence != nil:
		return no(infrav1.FencedReason, "spec.fence: %s. The host may do nothing but be reset; remove spec.fence to have it offered again", fence.Reason)
	default:
		return yes(infrav1.ApprovedReason)
	}
}

// pending returns why an administrator must approve the host.
func pending(host *infrav1.ElementalHost) Verdict {
	compare := "Compare the key fingerprint" + after(" ", fingerprint(host)) +
		" with the one the agent shows (elemental-agent status), then set spec.approval to Approved"
	switch host.Spec.PendingReason {
	case infrav1.PendingReadopted, infrav1.PendingReturned:
		return no(infrav1.ReadoptedReason, "The host was enrolled before and is not known here. %s; nothing on it is touched by that", compare)
	case infrav1.PendingAmbiguous:
		return no(infrav1.AmbiguousHardwareReason, "Several hosts that were declared in advance match this one, or one that has a key already. "+
			"Correct their spec.identity.match and delete this host, or keep it as another. %s", compare)
	default:
		return no(infrav1.PendingApprovalReason, "%s", compare)
	}
}

func fingerprint(host *infrav1.ElementalHost) string {
	if host.Spec.Identity == nil {
		return ""
	}
	return host.Spec.Identity.KeyFingerprint
}

// after puts a separator before a text that may be blank.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

func clean(host *infrav1.ElementalHost) Verdict {
	if claim := host.Spec.Claim; claim != nil {
		switch claim.Phase {
		case infrav1.ClaimBound:
			return no(infrav1.InUseReason, "The host belongs to Machine %s", claim.MachineName)
		case infrav1.ClaimHeld:
			return held(claim)
		case infrav1.ClaimReleasing:
			if v, done := resetVerdict(host, claim); !done {
				return v
			}
		case infrav1.ClaimReserved:
		}
	}
	switch c := host.Status.Cleanliness; {
	case host.IsAdoptable():
		return no(infrav1.InUseReason, "%s", runsNode(host))
	case c == nil:
		return unknown(infrav1.NotReportedReason, "The agent has not yet reported whether anything of a former node is left")
	case c.State == infrav1.CleanlinessDirty:
		return no(infrav1.LeftoversReason, "Left of a former node: %s", strings.Join(c.Leftovers, ", "))
	default:
		return yes(infrav1.CleanReason)
	}
}

// held returns what a held host waits for.
func held(claim *infrav1.HostClaim) Verdict {
	return no(infrav1.ResetHeldReason, "Machine %s is deleted and the host was not reset; "+
		"set spec.claim.phase to Releasing to have it reset and offered again", claim.MachineName)
}

// resetVerdict returns the verdict on the reset of a releasing host. done is true if the
// reset succeeded.
func resetVerdict(host *infrav1.ElementalHost, claim *infrav1.HostClaim) (v Verdict, done bool) {
	op := host.Operation(infrav1.OperationReset, claim.ID)
	switch {
	case op != nil && op.State == infrav1.OperationSucceeded:
		return Verdict{}, true
	case plan.ResetPrevented(host):
		return resetPrevented(host), false
	case op != nil && op.State == infrav1.OperationRunning:
		return no(infrav1.ResettingReason, "The agent is resetting the host%s", after(" at step ", op.Step)), false
	case op != nil && op.State == infrav1.OperationUnsupported, host.Status.Agent != nil && !host.Supports(infrav1.OperationReset):
		return no(infrav1.UnsupportedReason, "The agent can't reset; upgrade it"), false
	case claim.Erase != "" && host.Status.Agent != nil && !host.Supports(infrav1.OperationType(protocol.CapabilityErase)):
		return no(infrav1.UnsupportedReason, "The agent can't erase data disks, so nothing is reset; upgrade it, or remove spec.claim.erase (%s) "+
			"to leave all data disks as they are", claim.Erase), false
	case op == nil && plan.Paused(host):
		return no(clusterv1.PausedReason, "The reset waits until the annotation %s is removed from the host", plan.PausedBy(host)), false
	case op == nil:
		return no(infrav1.ResettingReason, "Waiting for the agent to reset the host"), false
	default:
		return no(infrav1.ResetFailedReason, "The reset failed%s and is tried again: %s%s",
			after(" at step ", op.Step), op.Message, after("; not erased: ", notErased(host, claim))), false
	}
}

func resetPrevented(host *infrav1.ElementalHost) Verdict {
	if host.InMaintenance() {
		return no(infrav1.ResetPreventedReason, "The reset waits until the maintenance ends; spec.maintenance: %s", host.Spec.Maintenance.Reason)
	}
	return no(infrav1.ResetPreventedReason, "The reset waits until the annotation %s is removed from the host", infrav1.PreventResetAnnotation)
}

// notErased lists the disks that the last erasure for the claim failed on.
func notErased(host *infrav1.ElementalHost, claim *infrav1.HostClaim) string {
	erasure := host.Status.Erasure
	if erasure == nil || erasure.OperationID != claim.ID {
		return ""
	}
	var disks []string
	for _, disk := range erasure.Disks {
		if disk.Result == infrav1.ErasureFailed {
			disks = append(disks, disk.Name)
		}
	}
	return strings.Join(disks, ", ")
}

func bootstrapped(host *infrav1.ElementalHost) Verdict {
	claim := host.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimBound {
		return no(infrav1.NotClaimedReason, "The host belongs to no Machine")
	}
	op := host.Operation(infrav1.OperationBootstrap, claim.ID)
	switch {
	case wasReset(host, claim):
		return no(infrav1.AlreadyResetReason, "The host was reset for Machine %s, before this management cluster was restored from an older backup. "+
			"The Machine has no Node on it; delete the Machine to have it replaced", claim.MachineName)
	case op == nil && host.Status.Agent != nil && !host.Supports(infrav1.OperationBootstrap):
		return no(infrav1.UnsupportedReason, "The agent can't bootstrap; upgrade it")
	case plan.BootstrapPrevented(host):
		return no(infrav1.MaintenanceReason, "The bootstrap waits until the maintenance ends; spec.maintenance: %s", host.Spec.Maintenance.Reason)
	case op == nil && plan.Paused(host):
		return no(clusterv1.PausedReason, "The bootstrap waits until the annotation %s is removed from the host", plan.PausedBy(host))
	case op == nil:
		return no(infrav1.BootstrappingReason, "Waiting for the agent to %s", pick(claim, "take over the Node for Machine "+claim.MachineName,
			"run the bootstrap data of Machine "+claim.MachineName))
	case op.State == infrav1.OperationSucceeded:
		return yes(infrav1.BootstrapSucceededReason)
	case op.State == infrav1.OperationRunning:
		return no(infrav1.BootstrappingReason, "The agent is %s%s", pick(claim, "taking over the Node for Machine "+claim.MachineName,
			"running the bootstrap data of Machine "+claim.MachineName), after(" at step ", op.Step))
	case op.State == infrav1.OperationUnsupported:
		return no(infrav1.UnsupportedReason, "The agent can't bootstrap; upgrade it")
	default:
		return no(infrav1.BootstrapFailedReason, "The %s failed%s: %s", pick(claim, "adoption", "bootstrap"), after(" at step ", op.Step), op.Message)
	}
}

// pick returns the first text if the Machine of the claim takes over a running Node, and else the second one.
func pick(claim *infrav1.HostClaim, adopted, bootstrapped string) string {
	if claim.Adoption != nil {
		return adopted
	}
	return bootstrapped
}

// wasReset reports whether the reset that ends the claim is done, although the claim is not released.
func wasReset(host *infrav1.ElementalHost, claim *infrav1.HostClaim) bool {
	reset := host.Operation(infrav1.OperationReset, claim.ID)
	return reset != nil && reset.State == infrav1.OperationSucceeded
}

func paused(host *infrav1.ElementalHost) Verdict {
	if by := plan.PausedBy(host); by != "" {
		message := "The host has the annotation " + by
		if by != clusterv1.PausedAnnotation {
			message += ": clusterctl is moving it, or was interrupted. Run clusterctl again, and remove the annotation from all objects " +
				"in the management cluster where they are then"
		}
		return Verdict{metav1.ConditionTrue, clusterv1.PausedReason, message}
	}
	return Verdict{metav1.ConditionFalse, clusterv1.NotPausedReason, ""}
}
