package machine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

// Values that mark skip-remediation annotations that this package has set: for maintenance of
// the host, and for an upgrade in place.
const (
	skipForMaintenance = "elemental-maintenance"
	skipForUpgrade     = "elemental-upgrade"
)

// hostFenced reports whether an administrator has fenced the machine's host.
func hostFenced(s *scope) bool {
	return isClaimedBy(s.host, s.machine.Spec.HostRef) && s.host.Spec.Fence != nil
}

// releaseFencedHost deletes the Machine of a fenced host, if the machine has one, and
// releases the host. It reads the host past the cache: a fence that was removed must
// delete nothing.
func (r *Reconciler) releaseFencedHost(ctx context.Context, s *scope) error {
	live := &infrav1.ElementalHost{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.host), live); err != nil {
		return fmt.Errorf("reading fenced host %s: %w", s.host.Name, err)
	}
	if s.host = live; !hostFenced(s) {
		return nil // the change of the host triggers another reconcile
	}
	if s.owner != nil && s.owner.DeletionTimestamp.IsZero() {
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
	if another, err := r.releaser().belongsToAnother(ctx, s, live); another || err != nil {
		return err
	}
	if err := markForDeletion(ctx, r.Client, s); err != nil {
		return err
	}
	return claim.Release(ctx, r.Client, live, s.machine.Spec.HostRef.ClaimID, s.machine.Spec.Release.EraseDataDisks)
}

// skipRemediation sets Cluster API's skip-remediation annotation on the Machine while its host
// is in maintenance or upgrades its Node, and removes it afterwards. It leaves annotations
// alone that another client has set.
func (r *Reconciler) skipRemediation(ctx context.Context, s *scope) error {
	if !s.owner.DeletionTimestamp.IsZero() {
		return nil
	}
	want := skipValue(s)
	value, found := s.owner.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	if found == (want != "") && (value == want || !found) || found && value != skipForMaintenance && value != skipForUpgrade {
		return nil
	}
	before := s.owner.DeepCopy()
	if want != "" {
		annotations.AddAnnotations(s.owner, map[string]string{clusterv1.MachineSkipRemediationAnnotation: want})
	} else {
		delete(s.owner.Annotations, clusterv1.MachineSkipRemediationAnnotation)
	}
	ctrl.LoggerFrom(ctx).Info("Marking Machine for the state of its host", "Machine", klog.KObj(s.owner), "skipRemediation", want)
	if err := r.Client.Patch(ctx, s.owner, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("marking Machine %s for the state of its host: %w", s.owner.Name, err)
	}
	return nil
}

// skipValue returns the value of the skip-remediation annotation that the Machine is to have;
// blank for none.
func skipValue(s *scope) string {
	switch {
	case !isClaimedBy(s.host, s.machine.Spec.HostRef):
		return ""
	case s.host.InMaintenance():
		return skipForMaintenance
	case isUpgrading(s):
		return skipForUpgrade
	default:
		return ""
	}
}

// isUpgrading reports whether the Node is upgraded in place: from the moment at which Cluster
// API or this provider marks the Machine until the host has finished. A host whose upgrade
// failed counts too, because a remediation would wipe what a person or another attempt can
// repair.
func isUpgrading(s *scope) bool {
	up := inplace.Request(s.host)
	return inplace.IsMarked(s.owner.Annotations) ||
		up != nil && inplace.TargetOf(up) == inplace.Wanted(s.owner, s.machine, s.host)
}
