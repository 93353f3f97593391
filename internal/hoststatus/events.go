package hoststatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Event is an Event on a host.
type Event struct {
	// Type is corev1.EventTypeNormal or EventTypeWarning.
	Type, Reason, Message string
}

// Events returns the Events for the change of a host from before to after. The caller
// records them once it has written the status.
func Events(before, after *infrav1.ElementalHost) []Event {
	var events []Event
	for _, conditionType := range []string{
		infrav1.ConnectedCondition, infrav1.ApprovedCondition, infrav1.BootstrappedCondition, infrav1.CleanCondition, infrav1.AvailableCondition,
		infrav1.MachineExistsCondition, infrav1.ClockSynchronizedCondition, infrav1.AgentCurrentCondition,
		infrav1.CertificatesValidCondition,
	} {
		was := meta.FindStatusCondition(before.Status.Conditions, conditionType)
		is := meta.FindStatusCondition(after.Status.Conditions, conditionType)
		if is == nil || (was != nil && was.Status == is.Status && was.Reason == is.Reason) {
			continue
		}
		// The condition may have another reason although the maintenance goes on.
		if was != nil && was.Reason == infrav1.MaintenanceReason && conditionType == infrav1.AvailableCondition && !after.InMaintenance() {
			events = append(events, maintenanceEnded(after))
		}
		if e, ok := event(after, was, is); ok {
			events = append(events, e)
		}
	}
	if e, ok := tunnelEvent(before, after); ok {
		events = append(events, e)
	}
	if e, ok := bundleEvent(before, after); ok {
		events = append(events, e)
	}
	if e, ok := preparedEvent(before, after); ok {
		events = append(events, e)
	}
	return events
}

// bundleEvent returns the Event for a bundle that was staged or could not be.
func bundleEvent(former, host *infrav1.ElementalHost) (Event, bool) {
	was, is := former.Status.Bundle, host.Status.Bundle
	if is == nil || was != nil && was.SHA256 == is.SHA256 && was.State == is.State {
		return Event{}, false
	}
	switch is.State {
	case infrav1.BundleStaged:
		return Event{corev1.EventTypeNormal, infrav1.BundleStagedReason, "The bundle of Kubernetes " + is.Version + " is staged"}, true
	case infrav1.BundleFailed:
		return Event{corev1.EventTypeWarning, infrav1.BundleFailedReason, "The bundle of Kubernetes " + is.Version + " can't be staged" + after(": ", is.Message)}, true
	case infrav1.BundleStaging:
		return Event{}, false
	default:
		return Event{}, false
	}
}

// tunnelEvent returns the Event for a tunnel that was opened or lost. A tunnel that the plan
// no longer asks for ends without one.
func tunnelEvent(before, after *infrav1.ElementalHost) (Event, bool) {
	was, is := before.Status.Tunnel, after.Status.Tunnel
	if is == nil || was != nil && was.State == is.State {
		return Event{}, false
	}
	switch {
	case is.State == infrav1.ConnectionConnected:
		return Event{corev1.EventTypeNormal, infrav1.TunnelOpenedReason, "The host has opened a tunnel"}, true
	case after.InMaintenance():
		return Event{corev1.EventTypeNormal, infrav1.TunnelLostReason, is.Message}, true
	default:
		return Event{corev1.EventTypeWarning, infrav1.TunnelLostReason, is.Message}, true
	}
}

// preparedEvent returns the Event for a free host that was prepared and is not any more, or the
// other way round. A host that lacks something from the start has none, and neither has one
// whose reset removes a bundle: it may get another.
func preparedEvent(before, after *infrav1.ElementalHost) (Event, bool) {
	was := meta.FindStatusCondition(before.Status.Conditions, infrav1.PreparedCondition)
	is := meta.FindStatusCondition(after.Status.Conditions, infrav1.PreparedCondition)
	switch {
	case was == nil || is == nil || was.Status == is.Status || before.Spec.Claim != nil || after.Spec.Claim != nil:
		return Event{}, false
	case was.Status == metav1.ConditionTrue && is.Status == metav1.ConditionFalse:
		return Event{corev1.EventTypeWarning, is.Reason, is.Message}, true
	case was.Status == metav1.ConditionFalse && is.Status == metav1.ConditionTrue:
		return Event{corev1.EventTypeNormal, is.Reason, "The host has what kubeadm needs"}, true
	default:
		return Event{}, false
	}
}

// maintenanceEnded returns a warning if the host is still disconnected. During maintenance
// that was expected.
func maintenanceEnded(host *infrav1.ElementalHost) Event {
	if v := connected(host); v.reason == infrav1.DisconnectedReason {
		return Event{corev1.EventTypeWarning, infrav1.MaintenanceEndedReason, "Maintenance ended, but the host is not back. " + v.message}
	}
	return Event{corev1.EventTypeNormal, infrav1.MaintenanceEndedReason, "Maintenance ended"}
}

func event(host *infrav1.ElementalHost, was, is *metav1.Condition) (Event, bool) {
	normal := func(message string) (Event, bool) { return Event{corev1.EventTypeNormal, is.Reason, message}, true }
	if is.Type == infrav1.AvailableCondition {
		switch is.Reason {
		case infrav1.AvailableReason:
			return normal("The host is free for machines")
		case infrav1.MaintenanceReason:
			return normal("Maintenance began; " + is.Message)
		default:
			// The Event of another condition gives the reason.
			return Event{}, false
		}
	}
	switch is.Reason {
	case infrav1.ConnectedReason:
		return normal("The agent connected")
	case infrav1.DisconnectedReason:
		if host.InMaintenance() {
			return normal(is.Message)
		}
		return Event{corev1.EventTypeWarning, is.Reason, is.Message}, true
	case infrav1.BootstrapFailedReason, infrav1.AlreadyResetReason, infrav1.ResetFailedReason, infrav1.LeftoversReason, infrav1.UnsupportedReason,
		infrav1.RejectedReason, infrav1.MachineNotFoundReason, infrav1.IdentityClonedReason, infrav1.FencedReason,
		infrav1.AmbiguousHardwareReason, infrav1.ClockSkewedReason, infrav1.AgentUpdateFailedReason,
		infrav1.CertificatesExpiringReason, infrav1.CertificatesExpiredReason, infrav1.AuthorityExpiringReason:
		return Event{corev1.EventTypeWarning, is.Reason, is.Message}, true
	case infrav1.ApprovedReason:
		return normal("The host was approved")
	case infrav1.BootstrapSucceededReason:
		return normal("The bootstrap succeeded")
	case infrav1.AgentCurrentReason:
		return normal("The agent has the pinned version")
	case infrav1.ClockSynchronizedReason:
		// No Event if the clock was right from the start.
		if was == nil {
			return Event{}, false
		}
		return normal("The host's clock is synchronized again")
	case infrav1.CertificatesValidReason:
		// No Event for certificates that have just been made.
		if was == nil {
			return Event{}, false
		}
		return normal("The certificates of the control plane on the host were renewed")
	case infrav1.PendingApprovalReason, infrav1.ReadoptedReason, infrav1.ResetHeldReason, infrav1.ResetPreventedReason:
		return normal(is.Message)
	default:
		return Event{}, false
	}
}
