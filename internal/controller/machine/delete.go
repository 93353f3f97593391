package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// reconcileDelete releases the machine's host. It removes the finalizer when the
// host is clean, no longer exists, or has not answered in time. In this order:
//
//  1. After `clusterctl move` the host stays as it is.
//  2. A fenced host is reset, whatever the release policy is. The machine does not
//     wait for the reset.
//  3. With release policy Hold, or the annotation prevent-reset on the cluster, the
//     host is held: it stays as it is.
//  4. Any other host is reset, once maintenance is over and the reset is not
//     prevented.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.machine, infrav1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	// `clusterctl move` deletes what it has copied. The machine and its Node live on in
	// the target management cluster.
	if _, moved := s.machine.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moved {
		return ctrl.Result{}, r.removeFinalizer(ctx, s)
	}
	if err := readHostAgain(ctx, r.APIReader, s); err != nil {
		return ctrl.Result{}, err
	}
	releaser := r.releaser()
	if isClaimedBy(s.host, s.machine.Spec.HostRef) {
		if another, err := releaser.belongsToAnother(ctx, s, s.host); err != nil {
			return ctrl.Result{}, err
		} else if another {
			s.host = nil
		}
	}
	if err := releaser.releaseAll(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case !isClaimedBy(s.host, s.machine.Spec.HostRef):
		return ctrl.Result{}, r.removeFinalizer(ctx, s)
	case s.host.Spec.Claim.Phase == infrav1.ClaimHeld:
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeNormal, infrav1.ResetHeldReason, "Release",
			"Host %s was not reset; set its spec.claim.phase to Releasing to have it reset", s.host.Name)
		return ctrl.Result{}, r.removeFinalizer(ctx, s)
	case hoststatus.IsReset(s.host):
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeNormal, infrav1.ReleasedReason, "Release", "Host %s was reset", s.host.Name)
		return ctrl.Result{}, r.removeFinalizer(ctx, s)
	case hostFenced(s):
		r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeWarning, infrav1.FencedReason, "Release",
			"Host %s is fenced and not waited for; it is reset before anything else if it returns", s.host.Name)
		return ctrl.Result{}, r.removeFinalizer(ctx, s)
	}
	wait, limited, err := releaser.remainingWait(ctx, s)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case !limited:
		return ctrl.Result{}, nil
	case wait > 0:
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	s.timedOut = true
	r.Recorder.Eventf(s.machine, s.host, corev1.EventTypeWarning, infrav1.HostSilentReason, "Release",
		"Host %s did not answer in time; it is reset before anything else when it returns", s.host.Name)
	return ctrl.Result{}, r.removeFinalizer(ctx, s)
}

// readHostAgain reads the machine's host past the cache, unless the cache shows that
// the machine has claimed it. The host may have been bound a moment ago; if the
// finalizer were removed now, the host would stay bound for ever.
func readHostAgain(ctx context.Context, c client.Reader, s *scope) error {
	ref := s.machine.Spec.HostRef
	if ref == nil || isClaimedBy(s.host, ref) {
		return nil
	}
	live := &infrav1.ElementalHost{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: ref.Name}, live); {
	case err == nil:
		s.host = live
	case apierrors.IsNotFound(err):
		s.host = nil
	default:
		return fmt.Errorf("reading host %s: %w", ref.Name, err)
	}
	return nil
}

func (r *Reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	ctrl.LoggerFrom(ctx).Info("Removing finalizer")
	return client.IgnoreNotFound(r.patchSpec(ctx, s, "removing finalizer", func(m *infrav1.ElementalMachine) {
		controllerutil.RemoveFinalizer(m, infrav1.MachineFinalizer)
	}))
}
