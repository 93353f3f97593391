package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// patchStatus writes conditions and what the steps put into status, in one
// request and only if something changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalMachineStatus) error {
	now := metav1.NewTime(r.Clock.Now())
	for _, c := range conditions(s) {
		c.LastTransitionTime = now
		c.ObservedGeneration = s.machine.Generation
		meta.SetStatusCondition(&s.machine.Status.Conditions, c)
	}
	keepObservedGeneration(before.Conditions, s.machine.Status.Conditions)
	if equality.Semantic.DeepEqual(before, &s.machine.Status) {
		return nil
	}
	base := s.machine.DeepCopy()
	base.Status = *before
	after := s.machine.DeepCopy()
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	r.events(s, before)
	return nil
}

// keepObservedGeneration leaves alone what a mere change of generation would
// rewrite: our own writes to spec change no verdict. Ready follows the newest.
func keepObservedGeneration(before, after []metav1.Condition) {
	for i := range after {
		was := meta.FindStatusCondition(before, after[i].Type)
		if was == nil || was.Type == infrav1.ReadyCondition {
			continue
		}
		if was.Status == after[i].Status && was.Reason == after[i].Reason && was.Message == after[i].Message {
			after[i].ObservedGeneration = was.ObservedGeneration
		}
	}
}

// events tells of failures; successes are told where they happen.
func (r *Reconciler) events(s *scope, before *infrav1.ElementalMachineStatus) {
	is := meta.FindStatusCondition(s.machine.Status.Conditions, infrav1.ReadyCondition)
	was := meta.FindStatusCondition(before.Conditions, infrav1.ReadyCondition)
	if is == nil || (was != nil && was.Reason == is.Reason) {
		return
	}
	switch is.Reason {
	case infrav1.BootstrapFailedReason, infrav1.NoHostReason, infrav1.HostMissingReason, infrav1.ResetFailedReason, infrav1.ResetPreventedReason:
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
	}
}

// conditions says what is the case, from what was read. It is pure.
func conditions(s *scope) []metav1.Condition {
	if paused(s) {
		return []metav1.Condition{condition(clusterv1.PausedCondition, metav1.ConditionTrue, clusterv1.PausedReason, pausedMessage(s))}
	}
	claimed, bootstrapped := hostClaimed(s), bootstrapped(s)
	return []metav1.Condition{
		claimed,
		bootstrapped,
		ready(s, claimed, bootstrapped),
		condition(clusterv1.PausedCondition, metav1.ConditionFalse, clusterv1.NotPausedReason, ""),
	}
}

func pausedMessage(s *scope) string {
	if s.cluster == nil {
		return "The Cluster does not exist, which counts as paused"
	}
	return "The Cluster or this object is paused"
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

func hostClaimed(s *scope) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return condition(infrav1.HostClaimedCondition, metav1.ConditionFalse, reason, message)
	}
	ref := s.machine.Spec.HostRef
	switch {
	case ref != nil && s.hostLost != "":
		return no(infrav1.HostMissingReason, s.hostLost)
	case fenced(s):
		return no(infrav1.FencedReason, fmt.Sprintf("Host %s is fenced (%s); its Machine is deleted", s.host.Name, s.host.Spec.Fence.Reason))
	case ref != nil && s.host != nil && s.host.Spec.Claim != nil && s.host.Spec.Claim.ID == ref.ClaimID:
		return condition(infrav1.HostClaimedCondition, metav1.ConditionTrue, infrav1.HostClaimedReason, "")
	case s.owner == nil:
		return no(infrav1.WaitingForOwnerReason, "Waiting for Cluster API to set the owner Machine")
	case s.cluster == nil || !infrastructureProvisioned(s.cluster):
		return no(infrav1.WaitingForInfrastructureReason, "Waiting for the Cluster's infrastructure to be provisioned")
	case s.owner.Spec.Bootstrap.DataSecretName == nil:
		return no(infrav1.WaitingForBootstrapDataReason, "Waiting for the bootstrap provider to write the bootstrap data of Machine "+s.owner.Name)
	case s.noHost != "":
		return no(infrav1.NoHostReason, stable(s, s.noHost))
	default:
		return no(infrav1.NoHostReason, "Choosing a host")
	}
}

// stable keeps the former text as long as it names the same groups of hosts, so
// that a fleet in motion does not make every waiting machine write.
func stable(s *scope, message string) string {
	was := meta.FindStatusCondition(s.machine.Status.Conditions, infrav1.HostClaimedCondition)
	if was != nil && was.Reason == infrav1.NoHostReason && withoutDigits(was.Message) == withoutDigits(message) {
		return was.Message
	}
	return message
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

func bootstrapped(s *scope) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return condition(infrav1.BootstrappedCondition, metav1.ConditionFalse, reason, message)
	}
	op := bootstrapOperation(s)
	switch {
	case s.machine.Spec.ProviderID != "":
		return condition(infrav1.BootstrappedCondition, metav1.ConditionTrue, infrav1.BootstrapSucceededReason, "")
	case s.host == nil:
		return no(infrav1.WaitingForBootstrapDataReason, "No host is claimed")
	case plan.BootstrapPrevented(s.host):
		return no(infrav1.MaintenanceReason, "The bootstrap waits until the maintenance of host "+s.host.Name+" ends")
	case op == nil || op.State == infrav1.OperationRunning:
		// Progress is on the host; repeating it here would double the writes.
		return no(infrav1.BootstrappingReason, "Host "+s.host.Name+" is to run the bootstrap data; its progress is in the ElementalHost")
	case op.State == infrav1.OperationFailed, op.State == infrav1.OperationUnsupported:
		at := ""
		if op.Step != "" {
			at = " at step " + op.Step
		}
		return no(infrav1.BootstrapFailedReason, fmt.Sprintf("The bootstrap failed on host %s%s: %s", s.host.Name, at, op.Message))
	default:
		return no(infrav1.BootstrappingReason, "Host "+s.host.Name+" is bootstrapped; recording it")
	}
}

// ready sums up: the first thing that is missing.
func ready(s *scope, claimed, bootstrapped metav1.Condition) metav1.Condition {
	if !s.machine.DeletionTimestamp.IsZero() {
		return deleting(s)
	}
	for _, c := range []metav1.Condition{claimed, bootstrapped} {
		if c.Status != metav1.ConditionTrue {
			c.Type = infrav1.ReadyCondition
			return c
		}
	}
	if !ptr.Deref(s.machine.Status.Initialization.Provisioned, false) {
		return condition(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.BootstrappingReason, "Recording the result")
	}
	return condition(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ProvisionedReason, "")
}

func deleting(s *scope) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return condition(infrav1.ReadyCondition, metav1.ConditionFalse, reason, message)
	}
	if s.host == nil || s.silent {
		return no(infrav1.DeletingReason, "The machine is let go")
	}
	if s.host.Spec.Maintenance != nil {
		// Unknown, so that its end is a transition: patience counts from there.
		message := fmt.Sprintf("The reset of host %s waits until its maintenance ends: remove spec.maintenance from the ElementalHost", s.host.Name)
		if !plan.ResetPrevented(s.host) {
			message = fmt.Sprintf("Host %s is in maintenance; its reset had begun before and goes on", s.host.Name)
		}
		return condition(infrav1.ReadyCondition, metav1.ConditionUnknown, infrav1.MaintenanceReason, message)
	}
	if plan.ResetPrevented(s.host) {
		return no(infrav1.ResetPreventedReason, fmt.Sprintf(
			"The reset of host %s waits until the annotation %s is removed from the ElementalHost", s.host.Name, infrav1.PreventResetAnnotation))
	}
	if c := s.host.Status.Connection; c == nil || c.State != infrav1.ConnectionConnected {
		return no(infrav1.HostSilentReason, fmt.Sprintf(
			"Host %s is not connected; the machine waits for it for at most spec.release.disconnectedTimeoutSeconds while another host of the cluster is connected. "+
				"If the host is dead, set spec.fence of the ElementalHost", s.host.Name))
	}
	clean := meta.FindStatusCondition(s.host.Status.Conditions, infrav1.CleanCondition)
	switch {
	case clean != nil && clean.Reason == infrav1.ResetFailedReason:
		return no(infrav1.ResetFailedReason, clean.Message)
	case clean != nil && (clean.Reason == infrav1.LeftoversReason || clean.Reason == infrav1.UnsupportedReason):
		return no(infrav1.WaitingForResetReason, fmt.Sprintf("Host %s is not clean: %s", s.host.Name, clean.Message))
	default:
		return no(infrav1.WaitingForResetReason, "Waiting until host "+s.host.Name+" is reset and clean")
	}
}
