package hoststatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Event is something worth telling people about a host.
type Event struct {
	// Type is corev1.EventTypeNormal or EventTypeWarning.
	Type, Reason, Message string
}

// Events tells what happened between two states of a host. Who writes a status
// records them.
func Events(before, after *infrav1.ElementalHost) []Event {
	var events []Event
	for _, conditionType := range []string{
		infrav1.ConnectedCondition, infrav1.ApprovedCondition, infrav1.BootstrappedCondition, infrav1.CleanCondition, infrav1.AvailableCondition,
		infrav1.MachineExistsCondition,
	} {
		was := meta.FindStatusCondition(before.Status.Conditions, conditionType)
		is := meta.FindStatusCondition(after.Status.Conditions, conditionType)
		if is == nil || (was != nil && was.Status == is.Status && was.Reason == is.Reason) {
			continue
		}
		if e, ok := event(is); ok {
			events = append(events, e)
		}
	}
	return events
}

func event(c *metav1.Condition) (Event, bool) {
	// Why a host is not available is what another condition has already told.
	if c.Type == infrav1.AvailableCondition && c.Reason != infrav1.AvailableReason {
		return Event{}, false
	}
	switch c.Reason {
	case infrav1.ConnectedReason:
		return Event{corev1.EventTypeNormal, c.Reason, "The agent connected"}, true
	case infrav1.DisconnectedReason, infrav1.BootstrapFailedReason, infrav1.ResetFailedReason,
		infrav1.LeftoversReason, infrav1.UnsupportedReason, infrav1.RejectedReason, infrav1.MachineNotFoundReason:
		return Event{corev1.EventTypeWarning, c.Reason, c.Message}, true
	case infrav1.ApprovedReason:
		return Event{corev1.EventTypeNormal, c.Reason, "The host was let in"}, true
	case infrav1.BootstrapSucceededReason:
		return Event{corev1.EventTypeNormal, c.Reason, "The bootstrap data ran and ended well"}, true
	case infrav1.AvailableReason:
		return Event{corev1.EventTypeNormal, c.Reason, "The host is free for machines"}, true
	case infrav1.PendingApprovalReason:
		return Event{corev1.EventTypeNormal, c.Reason, c.Message}, true
	default:
		return Event{}, false
	}
}
