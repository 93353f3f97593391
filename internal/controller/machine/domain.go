package machine

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// replaceInOtherDomain deletes the Machine if it waits for a host in a failure domain
// without one, and its owner will create another Machine in a failure domain that has one.
// Cluster API never changes the failure domain of a Machine.
func (r *Reconciler) replaceInOtherDomain(ctx context.Context, s *scope) error {
	if !ownerChoosesDomain(s) || s.machine.Spec.HostRef != nil || wanted(s).RequiredHost() != "" || !isPublishedElsewhere(s) {
		return nil
	}
	// The cache may be stale: a machine that has chosen a host must stay.
	live := &infrav1.ElementalMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.machine), live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading machine %s again: %w", s.machine.Name, err)
	}
	if live.UID != s.machine.UID || live.Spec.HostRef != nil || !live.DeletionTimestamp.IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting Machine that waits in a failure domain without a host",
		"Machine", klog.KObj(s.owner), "failureDomain", s.owner.Spec.FailureDomain)
	if err := r.Client.Delete(ctx, s.owner, client.Preconditions{UID: &s.owner.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s that waits in a failure domain without a host: %w", s.owner.Name, err)
	}
	r.Recorder.Eventf(s.machine, s.owner, corev1.EventTypeWarning, infrav1.MachineReplacedReason, "Replace",
		"Deleted Machine %s: no host in failure domain %s can be used, and its owner creates another in a failure domain with a host",
		s.owner.Name, s.owner.Spec.FailureDomain)
	return nil
}

// ownerChoosesDomain reports whether another Machine of the owner may get another failure
// domain. Control planes choose one for each Machine; all Machines of a MachineSet
// have the same.
func ownerChoosesDomain(s *scope) bool {
	return util.IsControlPlaneMachine(s.owner) && metav1.GetControllerOfNoCopy(s.owner) != nil && s.owner.DeletionTimestamp.IsZero()
}

// isPublishedElsewhere reports whether the control plane, as it reads the Cluster, would
// not create a Machine in the failure domain of this one, but in one with a host.
func isPublishedElsewhere(s *scope) bool {
	published := func(domain string) bool {
		return slices.ContainsFunc(s.cluster.Status.FailureDomains, func(d clusterv1.FailureDomain) bool {
			return d.Name == domain && ptr.Deref(d.ControlPlane, false)
		})
	}
	return !published(s.owner.Spec.FailureDomain) && slices.ContainsFunc(s.elsewhere, published)
}

// noHostInDomain returns the message for a machine whose failure domain has no host that
// can be used while another has.
func noHostInDomain(s *scope) string {
	advice := "The Machines of a MachineDeployment all get the failure domain in its machine template: free or enrol a host there, or change spec.template.spec.failureDomain"
	switch {
	case ownerChoosesDomain(s):
		advice = "The Machine is replaced as soon as Cluster " + s.cluster.Name + " publishes the other failure domain and no longer this one"
	case util.IsControlPlaneMachine(s.owner):
		advice = "Nothing owns the Machine that would replace it: free or enrol a host there, or delete the Machine and create it in another failure domain"
	}
	return fmt.Sprintf("No host in failure domain %s can be used, while one in another failure domain could be. %s. %s",
		s.owner.Spec.FailureDomain, advice, s.noHost)
}
