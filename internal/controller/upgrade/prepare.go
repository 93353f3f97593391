package upgrade

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/controlplane"
)

// controlPlaneDelay is how often the state of a control plane of one Machine is looked at.
// There is no watch on control planes.
const controlPlaneDelay = 10 * time.Second

// prepare gets the host ready for what its Machine is to have next, or says why that is not
// possible: Cluster API does not show it.
func (r *Reconciler) prepare(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.condition = targetObstacle(s, s.next); s.condition != nil {
		return ctrl.Result{}, nil
	}
	if s.kcp != nil {
		change, err := r.controlPlanes().Change(ctx, s.kcp, controlplane.Machine{Cluster: s.cluster, Machine: s.owner, Infra: s.machine, Host: s.host})
		if err != nil {
			return ctrl.Result{}, err
		}
		if why := change.Obstacle(); why != "" {
			s.condition = no(infrav1.UpgradeNotPossibleReason, "The change of Machine %s can't be made in place: %s; %s", s.owner.Name, why, consequence(s.mode))
			return ctrl.Result{RequeueAfter: controlPlaneDelay}, nil
		}
	}
	if err := r.stage(ctx, s, s.next); err != nil {
		return ctrl.Result{}, err
	}
	if hasHold(s.cluster) {
		s.condition = held(s, s.next)
		return ctrl.Result{}, nil
	}
	if s.kcp == nil || !controlplane.IsSingle(s.kcp) {
		s.condition = awaitingTurn(s)
		return ctrl.Result{}, nil
	}
	if why := notReady(s); why != "" {
		s.condition = no(infrav1.UpgradeWaitingForControlPlane, "The upgrade to %s waits: %s", s.next, why)
		return ctrl.Result{RequeueAfter: controlPlaneDelay}, nil
	}
	return ctrl.Result{}, r.begin(ctx, s)
}

// begin marks the only Machine of a control plane, unless the cluster's upgrades are held back.
func (r *Reconciler) begin(ctx context.Context, s *scope) error {
	mayBegin, err := r.mayBegin(ctx, s)
	if err != nil {
		return err
	}
	if !mayBegin {
		s.condition = held(s, s.next)
		return nil
	}
	if err := r.mark(ctx, s); err != nil {
		return err
	}
	s.condition = waitingForClusterAPI(s)
	return nil
}

func consequence(mode infrav1.InPlaceMode) string {
	if mode == infrav1.InPlaceRequired {
		return "the rollout is stopped, because spec.inPlace.mode of the ElementalCluster is Required"
	}
	return "Cluster API replaces the Machine"
}

// awaitingTurn returns the condition for a host whose Machine is as it was.
func awaitingTurn(s *scope) *metav1.Condition {
	if staged := s.host.Status.Bundle; s.next.Version != "" && staged != nil && staged.SHA256 == bundleOf(s).SHA256 && staged.State != infrav1.BundleStaged {
		return staging(s.host)
	}
	return no(infrav1.UpgradeWaitingForClusterAPIReason, "Waiting for the turn of Machine %s to be upgraded to %s", s.owner.Name, s.next)
}

// stage has the host fetch the bundle of a version before its turn. An image is fetched when it
// is deployed.
func (r *Reconciler) stage(ctx context.Context, s *scope, target inplace.Target) error {
	if target.Version == "" {
		return nil
	}
	bundle := bundleOf(s)
	if equality.Semantic.DeepEqual(s.host.Spec.Bundle, bundle) {
		return nil
	}
	return r.patchHost(ctx, s, "staging the bundle on", func(h *infrav1.ElementalHost) { h.Spec.Bundle = bundle })
}

// notReady says why the only Machine of a control plane can't be marked now; blank if it can.
func notReady(s *scope) string {
	kcp := s.kcp
	switch {
	case hasControlPlane(s.others):
		return "the control plane has another Machine"
	case !kcp.DeletionTimestamp.IsZero():
		return "the KubeadmControlPlane is being deleted"
	case annotations.HasPaused(kcp):
		return "the KubeadmControlPlane is paused"
	case !hasSeen(kcp):
		return "Cluster API has not seen the change of the KubeadmControlPlane yet"
	case !s.host.IsConnected():
		return fmt.Sprintf("host %s is not connected", s.host.Name)
	case s.host.InMaintenance():
		return fmt.Sprintf("host %s is in maintenance", s.host.Name)
	}
	for _, key := range []string{clusterv1.DeleteMachineAnnotation, clusterv1.RemediateMachineAnnotation} {
		if _, found := s.owner.Annotations[key]; found {
			return fmt.Sprintf("Machine %s has the annotation %s", s.owner.Name, key)
		}
	}
	for _, healthy := range []string{
		controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition,
	} {
		if !meta.IsStatusConditionTrue(kcp.Status.Conditions, healthy) {
			return fmt.Sprintf("the condition %s of the KubeadmControlPlane is not True", healthy)
		}
	}
	return ""
}

// hasSeen reports whether Cluster API has looked at the control plane since its last change.
// status.observedGeneration does not say that: Cluster API leaves it as it is after a refused
// surge.
func hasSeen(kcp *controlplanev1.KubeadmControlPlane) bool {
	c := meta.FindStatusCondition(kcp.Status.Conditions, controlplanev1.KubeadmControlPlaneRollingOutCondition)
	return c != nil && c.ObservedGeneration == kcp.Generation
}

// mark marks the only Machine of a control plane as Cluster API would. KubeadmControlPlane
// then writes what the Machine is to be, and has it updated: that is how it goes on after it
// has failed halfway.
func (r *Reconciler) mark(ctx context.Context, s *scope) error {
	if inplace.IsMarked(s.owner.Annotations) {
		return nil
	}
	before := s.owner.DeepCopy()
	annotations.AddAnnotations(s.owner, map[string]string{clusterv1.UpdateInProgressAnnotation: ""})
	ctrl.LoggerFrom(ctx).Info("Marking Machine for an update in place", "Machine", klog.KObj(s.owner), "target", s.next.String())
	if err := r.Client.Patch(ctx, s.owner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("marking Machine %s for an update in place: %w", s.owner.Name, err)
	}
	r.Recorder.Eventf(s.machine, s.owner, corev1.EventTypeNormal, infrav1.UpgradingReason, "Mark",
		"Marked Machine %s for an update in place to %s", s.owner.Name, s.next)
	return nil
}
