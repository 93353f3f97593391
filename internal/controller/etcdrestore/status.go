package etcdrestore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
)

func no(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{Type: infrav1.RestoredCondition, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// progress returns the condition while the host is to restore etcd.
func progress(s *scope, op *infrav1.HostOperation) metav1.Condition {
	switch {
	case !s.host.IsConnected():
		return no(infrav1.RestoreWaitingForHostReason, "Host %s is not connected; its agent goes on by itself if it has begun", s.host.Name)
	case op == nil && !s.host.Spec.EtcdRestore.WithdrawnAt.IsZero():
		return no(infrav1.RestoreWaitingForHostReason, "The request was withdrawn from host %s, which may just have begun", s.host.Name)
	case op == nil && (s.host.InMaintenance() || s.host.Spec.Fence != nil || annotations.HasPaused(s.host)):
		return no(infrav1.RestoreWaitingForHostReason, "Host %s was asked to restore etcd, and begins when it is not in maintenance, paused or fenced", s.host.Name)
	case op == nil:
		return no(infrav1.RestoreWaitingForHostReason, "Host %s was asked to restore etcd", s.host.Name)
	case op.Step == "":
		return no(infrav1.RestoringReason, "Host %s restores etcd", s.host.Name)
	default:
		return no(infrav1.RestoringReason, "Host %s restores etcd: step %s", s.host.Name, op.Step)
	}
}

// concluded returns the condition of a restore that has ended.
func concluded(result infrav1.EtcdRestoreResult, message string) metav1.Condition {
	switch result {
	case infrav1.EtcdRestoreSucceeded:
		c := no(infrav1.RestoredReason, "%s", message)
		c.Status = metav1.ConditionTrue
		return c
	case infrav1.EtcdRestoreFailed:
		return no(infrav1.RestoreFailedReason, "%s. To try again, create another ElementalEtcdRestore", message)
	case infrav1.EtcdRestoreNotServing:
		return no(infrav1.RestoreLeftBrokenReason, "%s. The Cluster stays paused until this ElementalEtcdRestore is deleted: look at the host first", message)
	default:
		return no(infrav1.RestoreLeftBrokenReason, "%s", message)
	}
}

// resultMessage returns the text for a restore that has ended before. The host's own message is
// lost if the status is.
func resultMessage(s *scope, result infrav1.EtcdRestoreResult) string {
	if s.host != nil {
		op := s.host.Operation(infrav1.OperationEtcdRestore, s.restore.Spec.Request.ID)
		if is, message := resultOf(op); is == result {
			return fmt.Sprintf("Host %s: %s", s.host.Name, message)
		}
	}
	return fmt.Sprintf("The restore on host %s has ended: %s", etcdrestore.HostName(s.restore), result)
}

// patchStatus sets the condition and writes status in one request, if it changed, and records
// an Event if the reason is new.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalEtcdRestoreStatus) error {
	is := s.condition
	if is.Type == "" {
		return nil
	}
	was := meta.FindStatusCondition(before.Conditions, is.Type)
	if was != nil && was.Reason == is.Reason && s.restore.Spec.Request != nil && s.restore.Spec.Request.Result != "" {
		is.Message = was.Message // the first one is the most exact
	}
	reconcile.SetConditions(&s.restore.Status.Conditions, s.restore.Generation, r.Clock.Now(), is)
	written, err := reconcile.PatchStatus(ctx, r.Client, s.restore, statusOf, before)
	if !written || was != nil && was.Reason == is.Reason {
		return err
	}
	var kind string
	switch is.Reason {
	case infrav1.RestoreNotConfirmedReason, infrav1.RestoreWaitingForHostReason, infrav1.RestoringReason, infrav1.RestoredReason:
		kind = corev1.EventTypeNormal
	case infrav1.RestoreRefusedReason, infrav1.RestoreFailedReason, infrav1.RestoreLeftBrokenReason:
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(s.restore, nil, kind, is.Reason, "Restore", "%s", is.Message)
	return nil
}
