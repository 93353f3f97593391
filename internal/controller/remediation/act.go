package remediation

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// requestPrefix begins the IDs of requests that this package makes.
const requestPrefix = "remediation-"

// requestID names one reboot of one remediation. It is derived, so that a request
// is recognised whose record in status was lost on the way.
func requestID(s *scope, attempt int32) string {
	return requestsOf(s) + strconv.Itoa(int(attempt))
}

// requestsOf begins the IDs of all requests of a remediation. UIDs differ in their
// first digits.
func requestsOf(s *scope) string {
	const short = 8
	uid := string(s.remediation.UID)
	return requestPrefix + uid[:min(short, len(uid))] + "-"
}

// pendingReboot is the request that the host has not yet carried out, if any.
func pendingReboot(host *infrav1.ElementalHost) string {
	reboot := host.Spec.Reboot
	if reboot == nil {
		return ""
	}
	op := host.Operation(infrav1.OperationReboot, reboot.ID)
	if op != nil && op.State != infrav1.OperationRunning {
		return ""
	}
	return reboot.ID
}

// reboot asks for a reboot. A request that is done with stays in spec until the
// next: the plan does not name it any more.
func (r *Reconciler) reboot(ctx context.Context, s *scope) error {
	id := requestID(s, s.decision.attempt)
	if pendingReboot(s.host) != id {
		ctrl.LoggerFrom(ctx).Info("Asking for a reboot", "request", id)
		if err := r.setReboot(ctx, s.host, &infrav1.HostReboot{ID: id}); err != nil {
			return err
		}
	}
	s.remediation.Status.Reboots = s.decision.attempt
	s.remediation.Status.WaitingSince = metav1.NewTime(s.now)
	return nil
}

// withdraw takes a request back that the host has taken no notice of, when a
// reboot is not what is waited for any more. Left where it is, it would hit the
// host when it returns, or the next machine that gets it.
func (r *Reconciler) withdraw(ctx context.Context, s *scope) error {
	if s.host == nil || s.decision.reason == infrav1.RebootRequestedReason {
		return nil
	}
	return r.takeBack(ctx, s.host, requestsOf(s))
}

// forget takes requests back of a remediation that is gone. It has no finalizer,
// as nothing is lost where a manager was not there to see it go: a host that is
// connected takes notice at once.
func (r *Reconciler) forget(ctx context.Context, key client.ObjectKey) error {
	hosts := &infrav1.ElementalHostList{}
	// A remediation has the Machine's name.
	if err := r.Client.List(ctx, hosts, client.InNamespace(key.Namespace), client.MatchingFields{index.HostByMachine: key.Name}); err != nil {
		return fmt.Errorf("listing hosts of Machine %s: %w", key.Name, err)
	}
	for i := range hosts.Items {
		if err := r.takeBack(ctx, &hosts.Items[i], requestPrefix); err != nil {
			return err
		}
	}
	return nil
}

// takeBack removes a request whose ID begins with prefix, and of which the host
// has reported nothing.
func (r *Reconciler) takeBack(ctx context.Context, host *infrav1.ElementalHost, prefix string) error {
	is := host.Spec.Reboot
	if is == nil || !strings.HasPrefix(is.ID, prefix) || host.Operation(infrav1.OperationReboot, is.ID) != nil {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Withdrawing a reboot", "request", is.ID)
	return client.IgnoreNotFound(r.setReboot(ctx, host, nil))
}

// setReboot changes the host's request, if nobody else has changed the host since
// it was read.
func (r *Reconciler) setReboot(ctx context.Context, host *infrav1.ElementalHost, to *infrav1.HostReboot) error {
	after := host.DeepCopy()
	after.Spec.Reboot = to
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing spec.reboot of host %s: %w", host.Name, err)
	}
	after.DeepCopyInto(host)
	return nil
}

// replace has the Machine's owner replace it.
func (r *Reconciler) replace(ctx context.Context, s *scope) error {
	reboot := s.decision.reboot
	s.decision = replacing(s)
	s.decision.reboot = reboot
	if metav1.GetControllerOf(s.owner) == nil {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Asking the Machine's owner to replace it")
	helper, err := patch.NewHelper(s.owner, r.Client)
	if err != nil {
		return fmt.Errorf("preparing to change Machine %s: %w", s.owner.Name, err)
	}
	conditions.Set(s.owner, metav1.Condition{
		Type:               clusterv1.MachineOwnerRemediatedCondition,
		Status:             metav1.ConditionFalse,
		Reason:             clusterv1.MachineOwnerRemediatedWaitingForRemediationReason,
		Message:            "Waiting for remediation",
		LastTransitionTime: metav1.NewTime(s.now),
	})
	// Owned, lest a conflict leave the request undone: the owner of the Machine
	// changes the condition too, but only from False on.
	err = helper.Patch(ctx, s.owner, patch.WithOwnedConditions{Conditions: []string{clusterv1.MachineOwnerRemediatedCondition}})
	if err != nil {
		return fmt.Errorf("asking the owner of Machine %s to replace it: %w", s.owner.Name, err)
	}
	return nil
}
