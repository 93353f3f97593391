package host

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/pause"
)

// unblockPausedMove removes the annotation block-move of a paused host unless the host is
// being reset. `clusterctl move` pauses the cluster first and then waits until the
// annotation is gone. A reset that has not begun does not begin before the end of the
// pause, so the move need not wait for it: the claim in spec moves along.
func (r *Reconciler) unblockPausedMove(ctx context.Context, host *infrav1.ElementalHost) error {
	is := host.Spec.Claim
	if is == nil || is.Phase != infrav1.ClaimReleasing || isResetting(host) {
		return nil
	}
	return r.setBlockMove(ctx, host, false)
}

// isResetting reports whether the host resets itself. A host that is no longer connected
// may never finish, and must not block a move for ever.
func isResetting(host *infrav1.ElementalHost) bool {
	op := host.Operation(infrav1.OperationReset, host.Spec.Claim.ID)
	return op != nil && op.State == infrav1.OperationRunning && host.IsConnected()
}

// setBlockMove sets or removes the annotation block-move.
func (r *Reconciler) setBlockMove(ctx context.Context, host *infrav1.ElementalHost, block bool) error {
	if _, blocked := host.Annotations[clusterctlv1.BlockMoveAnnotation]; blocked == block {
		return nil
	}
	before := host.DeepCopy()
	if block {
		annotations.AddAnnotations(host, map[string]string{clusterctlv1.BlockMoveAnnotation: ""})
	} else {
		delete(host.Annotations, clusterctlv1.BlockMoveAnnotation)
	}
	ctrl.LoggerFrom(ctx).Info("Setting or removing annotation", "annotation", clusterctlv1.BlockMoveAnnotation, "set", block)
	if err := r.Client.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("setting or removing annotation %s: %w", clusterctlv1.BlockMoveAnnotation, err)
	}
	return nil
}

// pausedOrResumed selects new objects that are paused, and changes of the pause.
func pausedOrResumed() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return isPaused(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return isPaused(e.ObjectOld) != isPaused(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func isPaused(object client.Object) bool {
	if cluster, ok := object.(*clusterv1.Cluster); ok {
		return pause.Cluster(cluster)
	}
	return annotations.HasPaused(object)
}

func hostOfElementalMachine(_ context.Context, object client.Object) []ctrl.Request {
	machine, ok := object.(*infrav1.ElementalMachine)
	if !ok || machine.Spec.HostRef == nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.HostRef.Name}}}
}
