package access

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// maxMessage bounds what a workload cluster writes into the management cluster.
const maxMessage = 1024

// conditionOf returns the condition AccessReady that follows from what was found. It is pure.
func conditionOf(f findings, err error) *metav1.Condition {
	ready := metav1.Condition{Type: infrav1.AccessReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.BindingsAppliedReason}
	switch {
	case err != nil && isAnswer(err):
		return notReady(infrav1.BindingsRefusedReason, "The workload cluster refuses: "+err.Error())
	case err != nil:
		return notReady(infrav1.ClusterUnreachableReason, "The workload cluster can't be reached: "+err.Error())
	case len(f.taken) > 0:
		return notReady(infrav1.BindingNameTakenReason, fmt.Sprintf("Without the label %s these ClusterRoleBindings of the workload cluster are somebody else's, and stay as they are: %s. "+
			"Delete them there", label, failover.JoinFirst(f.taken, ", ")))
	case len(f.missing) > 0:
		ready.Reason = infrav1.ClusterRoleMissingReason
		ready.Message = "The workload cluster has no such ClusterRoles yet, so their bindings permit nothing: " + failover.JoinFirst(f.missing, ", ")
	}
	return &ready
}

func notReady(reason, message string) *metav1.Condition {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return &metav1.Condition{Type: infrav1.AccessReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// recordRestored records an Event when bindings were put back: written ones that were right for
// the same spec before.
func (r *Reconciler) recordRestored(infra *infrav1.ElementalCluster, written []string, before *metav1.Condition) {
	if len(written) > 0 && before != nil && before.Status == metav1.ConditionTrue && before.ObservedGeneration == infra.Generation {
		r.Recorder.Eventf(infra, nil, corev1.EventTypeWarning, infrav1.BindingRestoredReason, "Restore",
			"Put back what somebody had changed in the workload cluster: %s", failover.JoinFirst(written, ", "))
	}
}

// recordEvents records an Event when the condition gets another reason. after is nil if the
// condition is removed.
func (r *Reconciler) recordEvents(infra *infrav1.ElementalCluster, after, before *metav1.Condition) {
	switch {
	case after == nil:
		if before != nil && before.Reason != infrav1.WaitingForControlPlaneReason {
			r.Recorder.Eventf(infra, nil, corev1.EventTypeNormal, infrav1.BindingsDeletedReason, "Unbind",
				"The workload cluster has no bindings of spec.access any more")
		}
	case before != nil && before.Reason == after.Reason:
	case after.Reason == infrav1.BindingsAppliedReason:
		r.Recorder.Eventf(infra, nil, corev1.EventTypeNormal, infrav1.BindingsAppliedReason, "Bind", "The workload cluster has the bindings of spec.access")
	case after.Reason == infrav1.ClusterRoleMissingReason:
		r.event(infra, infrav1.ClusterRoleMissingReason, after.Message)
	case after.Reason == infrav1.BindingNameTakenReason:
		r.event(infra, infrav1.BindingNameTakenReason, after.Message)
	case after.Reason == infrav1.BindingsRefusedReason:
		r.event(infra, infrav1.BindingsRefusedReason, after.Message)
	case after.Reason == infrav1.ClusterUnreachableReason:
		r.event(infra, infrav1.ClusterUnreachableReason, after.Message)
	}
}

func (r *Reconciler) event(infra *infrav1.ElementalCluster, reason, message string) {
	r.Recorder.Eventf(infra, nil, corev1.EventTypeWarning, reason, "Bind", "%s", message)
}
