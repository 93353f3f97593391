package machine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

// maintenanceMark is the value of Cluster API's skip-remediation annotation on a
// Machine whose host is in maintenance; values of others are theirs.
const maintenanceMark = "elemental-maintenance"

// fenced reports whether an administrator has given up the machine's host.
func fenced(s *scope) bool {
	return isOf(s.host, s.machine.Spec.HostRef) && s.host.Spec.Fence != nil
}

// giveUp deletes the Machine of a fenced host and releases the host. It is done
// before anything of the machine's own life, and by what the API server says, not
// the cache: a fence that is gone again deletes nothing.
func (r *Reconciler) giveUp(ctx context.Context, s *scope) error {
	live := &infrav1.ElementalHost{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.host), live); err != nil {
		return fmt.Errorf("reading fenced host %s: %w", s.host.Name, err)
	}
	if s.host = live; !fenced(s) {
		return nil // its change brings the machine back here
	}
	if s.owner.DeletionTimestamp.IsZero() && owns(s.owner, s.machine) {
		ctrl.LoggerFrom(ctx).Info("Deleting Machine of a fenced host", "Machine", klog.KObj(s.owner))
		if err := r.Client.Delete(ctx, s.owner, client.Preconditions{UID: &s.owner.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Machine %s of a fenced host: %w", s.owner.Name, err)
		}
		r.Recorder.Eventf(s.machine, s.owner, corev1.EventTypeWarning, infrav1.FencedReason, "Fence",
			"Deleted Machine %s: host %s is fenced (%s)", s.owner.Name, live.Name, live.Spec.Fence.Reason)
	}
	if live.Spec.Claim.Phase != infrav1.ClaimBound {
		return nil
	}
	return claim.Release(ctx, r.Client, live, s.machine.Spec.HostRef.ClaimID, s.machine.Spec.Release.EraseDataDisks)
}

// owns tells the machine's Machine from one that was made anew under its name.
func owns(owner *clusterv1.Machine, machine *infrav1.ElementalMachine) bool {
	return slices.ContainsFunc(machine.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID })
}

// skipRemediation keeps MachineHealthChecks off a Machine while its host is in
// maintenance. An annotation that is not ours is neither replaced nor removed.
func (r *Reconciler) skipRemediation(ctx context.Context, s *scope) error {
	if !s.owner.DeletionTimestamp.IsZero() {
		return nil
	}
	want := isOf(s.host, s.machine.Spec.HostRef) && s.host.Spec.Maintenance != nil
	value, found := s.owner.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	if want == found || (found && value != maintenanceMark) {
		return nil
	}
	before := s.owner.DeepCopy()
	if want {
		if s.owner.Annotations == nil {
			s.owner.Annotations = map[string]string{}
		}
		s.owner.Annotations[clusterv1.MachineSkipRemediationAnnotation] = maintenanceMark
	} else {
		delete(s.owner.Annotations, clusterv1.MachineSkipRemediationAnnotation)
	}
	ctrl.LoggerFrom(ctx).Info("Marking Machine for maintenance of its host", "Machine", klog.KObj(s.owner), "maintenance", want)
	if err := r.Client.Patch(ctx, s.owner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("marking Machine %s for maintenance: %w", s.owner.Name, err)
	}
	return nil
}

// holds reports whether the machine's hosts are to stay as they are when it goes:
// by its own release policy, or because somebody has asked for that on the Cluster
// or ElementalCluster. Those are read past the cache, as a reset can't be undone.
func (r *Reconciler) holds(ctx context.Context, s *scope) (bool, error) {
	if s.machine.Spec.Release.Policy == infrav1.ReleaseHold {
		return true, nil
	}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: clusterName(s)}
	if key.Name == "" {
		return false, nil
	}
	cluster := &clusterv1.Cluster{}
	if err := r.APIReader.Get(ctx, key, cluster); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Cluster %s: %w", key.Name, err)
	}
	if preventsReset(cluster) {
		return true, nil
	}
	infraClusters := &infrav1.ElementalClusterList{}
	err := r.APIReader.List(ctx, infraClusters, client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name})
	if err != nil {
		return false, fmt.Errorf("listing ElementalClusters of Cluster %s: %w", key.Name, err)
	}
	for i := range infraClusters.Items {
		if preventsReset(&infraClusters.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}

func preventsReset(o client.Object) bool {
	_, found := o.GetAnnotations()[infrav1.PreventResetAnnotation]
	return found
}
