package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// blockMoveValue marks block-move annotations that this package has set.
	blockMoveValue = "elemental-bootstrap"
	// deleteMachineValue marks delete-machine annotations that this package has set.
	deleteMachineValue = "elemental-release"
)

// blockMove makes `clusterctl move` wait until the host is bootstrapped. The
// annotation is on the machine because that needs no extra write.
func blockMove(m *infrav1.ElementalMachine) {
	if _, blocked := m.Annotations[clusterctlv1.BlockMoveAnnotation]; !blocked {
		annotations.AddAnnotations(m, map[string]string{clusterctlv1.BlockMoveAnnotation: blockMoveValue})
	}
}

func unblockMove(m *infrav1.ElementalMachine) {
	if m.Annotations[clusterctlv1.BlockMoveAnnotation] == blockMoveValue {
		delete(m.Annotations, clusterctlv1.BlockMoveAnnotation)
	}
}

// unblockPausedMove removes the annotation block-move of a paused machine unless its
// host is being bootstrapped. `clusterctl move` pauses the cluster first and then waits
// until the annotation is gone. A bootstrap that has not begun does not begin before the
// end of the pause, so the move need not wait for it.
func (r *Reconciler) unblockPausedMove(ctx context.Context, s *scope) error {
	if s.machine.Annotations[clusterctlv1.BlockMoveAnnotation] != blockMoveValue || isBootstrapping(s) {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Removing annotation, because the machine is paused and no bootstrap runs", "annotation", clusterctlv1.BlockMoveAnnotation)
	return client.IgnoreNotFound(r.patchSpec(ctx, s, "removing annotation "+clusterctlv1.BlockMoveAnnotation, unblockMove))
}

// blockMoveAgain sets the annotation block-move if a pause removed it and the host is
// bootstrapped only now.
func (r *Reconciler) blockMoveAgain(ctx context.Context, s *scope) error {
	if _, blocked := s.machine.Annotations[clusterctlv1.BlockMoveAnnotation]; blocked || s.machine.Spec.ProviderID != "" {
		return nil
	}
	if op := bootstrapOperation(s); op != nil && op.State != infrav1.OperationRunning {
		return nil
	}
	return r.patchSpec(ctx, s, "setting annotation "+clusterctlv1.BlockMoveAnnotation, blockMove)
}

// isBootstrapping reports whether the machine's host runs the bootstrap data. A host that
// is no longer connected may never finish, and must not block a move for ever.
func isBootstrapping(s *scope) bool {
	op := bootstrapOperation(s)
	return op != nil && op.State == infrav1.OperationRunning && s.host.IsConnected() && isBoundTo(s.host, s.machine.Spec.HostRef)
}

// markForDeletion sets Cluster API's delete-machine annotation on the Machine, before its
// host is released. `clusterctl move` and a restore create the Machine again without its
// deletionTimestamp. When the owner of such a Machine then has one Machine too many, it
// deletes the one with the annotation and not a healthy one.
func markForDeletion(ctx context.Context, c client.Client, s *scope) error {
	if s.owner == nil {
		return nil
	}
	if _, marked := s.owner.Annotations[clusterv1.DeleteMachineAnnotation]; marked {
		return nil
	}
	before := s.owner.DeepCopy()
	annotations.AddAnnotations(s.owner, map[string]string{clusterv1.DeleteMachineAnnotation: deleteMachineValue})
	if err := c.Patch(ctx, s.owner, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking Machine %s for deletion: %w", s.owner.Name, err)
	}
	return nil
}

// hostReleased reports whether the machine's host was released or held for the deletion
// of this machine.
func hostReleased(s *scope) bool {
	return isClaimedBy(s.host, s.machine.Spec.HostRef) &&
		(s.host.Spec.Claim.Phase == infrav1.ClaimReleasing || s.host.Spec.Claim.Phase == infrav1.ClaimHeld)
}

// deleteReleased deletes the Machine of a host that is released or held already. Only the
// deletion of the machine leads to that, so the Machine was being deleted before
// `clusterctl move` or a restore created it again. It would otherwise stay without a host
// for ever. The host is read past the cache.
func (r *Reconciler) deleteReleased(ctx context.Context, s *scope) error {
	if !s.owner.DeletionTimestamp.IsZero() {
		return nil
	}
	live := &infrav1.ElementalHost{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.host), live); err != nil {
		return fmt.Errorf("reading released host %s: %w", s.host.Name, err)
	}
	if s.host = live; !hostReleased(s) {
		return nil // the change of the host triggers another reconcile
	}
	ctrl.LoggerFrom(ctx).Info("Deleting Machine again, whose host is released already", "Machine", klog.KObj(s.owner), "phase", live.Spec.Claim.Phase)
	if err := r.Client.Delete(ctx, s.owner, client.Preconditions{UID: &s.owner.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s, whose host is released already: %w", s.owner.Name, err)
	}
	r.Recorder.Eventf(s.machine, s.owner, corev1.EventTypeNormal, infrav1.DeletionResumedReason, "Release",
		"Deleted Machine %s again: it was being deleted before it was moved or restored, and host %s is %s for that", s.owner.Name, live.Name, live.Spec.Claim.Phase)
	return nil
}
