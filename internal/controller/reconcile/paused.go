package reconcile

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
)

// IsPaused reports whether the object, or the Cluster that it belongs to, is
// paused. cluster is nil if it does not exist. If the object refers to a Cluster
// (belongs), a missing one counts as paused unless the object is being deleted:
// during `clusterctl move` objects arrive one by one.
func IsPaused(cluster *clusterv1.Cluster, object metav1.Object, belongs bool) bool {
	if cluster != nil {
		return annotations.IsPaused(cluster, object)
	}
	return annotations.HasPaused(object) || (belongs && object.GetDeletionTimestamp().IsZero())
}

// Paused returns the condition Paused with status True.
func Paused(message string) metav1.Condition {
	return metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason, Message: message}
}

// PausedMessage returns the message of Paused for an object that belongs to the
// Cluster, which is nil if it does not exist.
func PausedMessage(cluster *clusterv1.Cluster) string {
	if cluster == nil {
		return "The Cluster does not exist, which counts as paused"
	}
	return "The Cluster or this object is paused"
}

// NotPaused returns the condition Paused with status False.
func NotPaused() metav1.Condition {
	return metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason}
}
