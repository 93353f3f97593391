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

// requestPrefix is the prefix of the IDs of all reboots that remediations request.
const requestPrefix = "remediation-"

// requestID returns the ID of one reboot of the remediation. It is derived from the
// remediation, so that a request is recognized even if the status write was lost.
func requestID(s *scope, attempt int32) string {
	return requestIDPrefix(s) + strconv.Itoa(int(attempt))
}

// requestIDPrefix returns the prefix of the IDs of all requests of the remediation.
// The first digits of UIDs differ.
func requestIDPrefix(s *scope) string {
	const short = 8
	uid := string(s.remediation.UID)
	return requestPrefix + uid[:min(short, len(uid))] + "-"
}

// pendingReboot returns the ID of the reboot that is requested and not yet done; blank
// if no reboot is.
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

// reboot requests a reboot. A completed request stays in spec until the next one; the
// host's plan no longer contains it.
func (r *Reconciler) reboot(ctx context.Context, s *scope) error {
	id := requestID(s, s.decision.attempt)
	if pendingReboot(s.host) != id {
		ctrl.LoggerFrom(ctx).Info("Requesting reboot", "request", id)
		if err := r.setReboot(ctx, s.host, &infrav1.HostReboot{ID: id}); err != nil {
			return err
		}
	}
	s.remediation.Status.Reboots = s.decision.attempt
	s.remediation.Status.WaitingSince = metav1.NewTime(s.now)
	return nil
}

// withdraw withdraws a reboot that the host has not started, if the decision no longer
// waits for it. Otherwise the host would reboot when it returns, or even when the next
// machine has claimed it.
func (r *Reconciler) withdraw(ctx context.Context, s *scope) error {
	if s.host == nil || s.decision.reason == infrav1.RebootRequestedReason {
		return nil
	}
	return r.withdrawUnstarted(ctx, s.host, requestIDPrefix(s))
}

// withdrawAll withdraws reboots of a remediation that no longer exists. Remediations
// have no finalizer: if no manager notices the deletion, at worst a host reboots once
// more, and a connected host starts its reboot at once anyway.
func (r *Reconciler) withdrawAll(ctx context.Context, key client.ObjectKey) error {
	hosts := &infrav1.ElementalHostList{}
	// A remediation has the name of its Machine.
	if err := r.Client.List(ctx, hosts, client.InNamespace(key.Namespace), client.MatchingFields{index.HostByMachine: key.Name}); err != nil {
		return fmt.Errorf("listing hosts of Machine %s: %w", key.Name, err)
	}
	for i := range hosts.Items {
		if err := r.withdrawUnstarted(ctx, &hosts.Items[i], requestPrefix); err != nil {
			return err
		}
	}
	return nil
}

// withdrawUnstarted removes a requested reboot whose ID has the prefix, if the host has
// not reported on it.
func (r *Reconciler) withdrawUnstarted(ctx context.Context, host *infrav1.ElementalHost, prefix string) error {
	is := host.Spec.Reboot
	if is == nil || !strings.HasPrefix(is.ID, prefix) || host.Operation(infrav1.OperationReboot, is.ID) != nil {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Withdrawing reboot", "request", is.ID)
	return client.IgnoreNotFound(r.setReboot(ctx, host, nil))
}

// setReboot sets spec.reboot with an optimistic lock.
func (r *Reconciler) setReboot(ctx context.Context, host *infrav1.ElementalHost, to *infrav1.HostReboot) error {
	after := host.DeepCopy()
	after.Spec.Reboot = to
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing spec.reboot of host %s: %w", host.Name, err)
	}
	after.DeepCopyInto(host)
	return nil
}

// replace asks the Machine's owner to replace it.
func (r *Reconciler) replace(ctx context.Context, s *scope) error {
	reboot := s.decision.rebootFailure
	s.decision = replacing(s)
	s.decision.rebootFailure = reboot
	if metav1.GetControllerOf(s.owner) == nil {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Asking the owner of the Machine to replace it")
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
	// Owning the condition makes the patch helper overwrite concurrent changes. That is
	// safe: the owner of the Machine changes the condition only once it is False.
	err = helper.Patch(ctx, s.owner, patch.WithOwnedConditions{Conditions: []string{clusterv1.MachineOwnerRemediatedCondition}})
	if err != nil {
		return fmt.Errorf("asking the owner of Machine %s to replace it: %w", s.owner.Name, err)
	}
	return nil
}
