package etcdrestore

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// resultOf returns how the host's operation ended; blank if it has not. A restore whose message
// has no outcome may have left anything.
func resultOf(op *infrav1.HostOperation) (result infrav1.EtcdRestoreResult, message string) {
	switch {
	case op == nil || op.State == infrav1.OperationRunning:
		return "", ""
	case op.State == infrav1.OperationSucceeded:
		return infrav1.EtcdRestoreSucceeded, op.Message
	case op.State == infrav1.OperationUnsupported || protocol.HasFormerData(op.Message):
		return infrav1.EtcdRestoreFailed, op.Message
	default:
		return infrav1.EtcdRestoreNotServing, op.Message
	}
}

// conclude records the result, which ends the restore for ever.
func (r *Reconciler) conclude(ctx context.Context, s *scope, result infrav1.EtcdRestoreResult, message string) error {
	ctrl.LoggerFrom(ctx).Info("A restore of etcd has ended", "result", result, "message", message)
	if err := r.patchRestore(ctx, s, "recording the result", func(restore *infrav1.ElementalEtcdRestore) {
		restore.Spec.Request.Result = result
	}); err != nil {
		return err
	}
	return r.settle(ctx, s, message)
}

// settle lets Cluster API go on, unless the control plane does not serve: Cluster API would begin
// to replace what a person has to look at.
func (r *Reconciler) settle(ctx context.Context, s *scope, message string) error {
	result := s.restore.Spec.Request.Result
	s.condition = concluded(result, message)
	if result == infrav1.EtcdRestoreNotServing {
		return r.release(ctx, s, false)
	}
	if result == infrav1.EtcdRestoreFailed {
		if err := r.startOthers(ctx, s); err != nil {
			return err
		}
	}
	if err := r.resume(ctx, s); err != nil {
		return err
	}
	return r.release(ctx, s, true)
}

// abandon ends a restore that is being deleted. What a host has begun goes on, so the deletion
// waits for that.
func (r *Reconciler) abandon(ctx context.Context, s *scope) error {
	if s.restore.Spec.Request != nil {
		result, isOver, err := r.withdraw(ctx, s)
		if err != nil || !isOver {
			return err
		}
		// The others start again only if the host has not restored etcd, as far as is known.
		finish := r.startOthers
		if result == infrav1.EtcdRestoreSucceeded {
			finish = r.complete
		}
		if err := finish(ctx, s); err != nil {
			return err
		}
	}
	if err := r.resume(ctx, s); err != nil {
		return err
	}
	return r.release(ctx, s, true)
}

// complete does what follows when etcd serves the snapshot, without waiting for hosts that reboot.
func (r *Reconciler) complete(ctx context.Context, s *scope) error {
	if err := r.replaceOthers(ctx, s); err != nil {
		return err
	}
	_, err := r.rebootLaterNodes(ctx, s)
	return err
}

// resume ends the pause of the Cluster, if it is that of this restore.
func (r *Reconciler) resume(ctx context.Context, s *scope) error {
	if s.facts.Cluster == nil || s.facts.Cluster.Annotations[infrav1.RestoreAnnotation] != s.restore.Name {
		return nil
	}
	return r.patchCluster(ctx, s, "ending the pause of Cluster", func(c *clusterv1.Cluster) {
		c.Spec.Paused = nil
		delete(c.Annotations, infrav1.RestoreAnnotation)
	})
}

// release lets the ElementalEtcdRestore be moved and, with the finalizer, deleted.
func (r *Reconciler) release(ctx context.Context, s *scope, finalizer bool) error {
	_, isBlocked := s.restore.Annotations[clusterctlv1.BlockMoveAnnotation]
	if !isBlocked && !(finalizer && controllerutil.ContainsFinalizer(s.restore, infrav1.EtcdRestoreFinalizer)) {
		return nil
	}
	return r.patchRestore(ctx, s, "releasing the restore", func(restore *infrav1.ElementalEtcdRestore) {
		delete(restore.Annotations, clusterctlv1.BlockMoveAnnotation)
		if finalizer {
			controllerutil.RemoveFinalizer(restore, infrav1.EtcdRestoreFinalizer)
		}
	})
}
