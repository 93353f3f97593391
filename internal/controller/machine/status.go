package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// patchStatus sets the conditions and writes status in one request, if it changed.
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, before *infrav1.ElementalMachineStatus) error {
	reconcile.SetConditions(&s.machine.Status.Conditions, s.machine.Generation, r.Clock.Now(), conditions(s)...)
	keepObservedGeneration(before.Conditions, s.machine.Status.Conditions)
	written, err := reconcile.PatchStatus(ctx, r.Client, s.machine, statusOf, before)
	if written {
		r.recordFailure(s, before)
	}
	return err
}

// keepObservedGeneration keeps the former observedGeneration of conditions that did
// not change otherwise. This controller's own writes to spec change the generation,
// and would cost a status write each. Ready always has the newest generation.
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

// recordFailure records an Event if the condition Ready has a new reason that is a
// failure. Successes are recorded where they happen.
func (r *Reconciler) recordFailure(s *scope, before *infrav1.ElementalMachineStatus) {
	is := meta.FindStatusCondition(s.machine.Status.Conditions, infrav1.ReadyCondition)
	was := meta.FindStatusCondition(before.Conditions, infrav1.ReadyCondition)
	if is == nil || (was != nil && was.Reason == is.Reason) {
		return
	}
	switch is.Reason {
	case infrav1.BootstrapFailedReason, infrav1.NoHostReason, infrav1.NoHostInFailureDomainReason, infrav1.HostMissingReason,
		infrav1.ResetFailedReason, infrav1.ResetPreventedReason:
		r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
	}
}

// conditions returns the machine's conditions. It is pure.
func conditions(s *scope) []metav1.Condition {
	if paused(s) {
		return []metav1.Condition{reconcile.Paused(reconcile.PausedMessage(s.cluster))}
	}
	claimed, bootstrapped := hostClaimed(s), bootstrapped(s)
	return []metav1.Condition{
		claimed,
		bootstrapped,
		ready(s, claimed, bootstrapped),
		reconcile.NotPaused(),
	}
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
	case s.mismatch != "":
		return no(infrav1.ReferenceMismatchReason, s.mismatch)
	case ref != nil && s.hostLost != "":
		return no(infrav1.HostMissingReason, s.hostLost)
	case hostFenced(s):
		return no(infrav1.FencedReason, fmt.Sprintf("Host %s is fenced (%s); its Machine is deleted", s.host.Name, s.host.Spec.Fence.Reason))
	case isClaimedBy(s.host, ref):
		return condition(infrav1.HostClaimedCondition, metav1.ConditionTrue, infrav1.HostClaimedReason, "ElementalHost "+s.host.Name)
	case s.owner == nil:
		return no(infrav1.WaitingForOwnerReason, "Waiting for Cluster API to set the owner Machine")
	case s.cluster == nil || !infrastructureProvisioned(s.cluster):
		return no(infrav1.WaitingForInfrastructureReason, "Waiting for the Cluster's infrastructure to be provisioned")
	case s.owner.Spec.Bootstrap.DataSecretName == nil:
		return no(infrav1.WaitingForBootstrapDataReason, "Waiting for the bootstrap provider to write the bootstrap data of Machine "+s.owner.Name)
	case len(s.elsewhere) > 0:
		return no(infrav1.NoHostInFailureDomainReason, keepMessage(s, infrav1.NoHostInFailureDomainReason, noHostInDomain(s)))
	case s.noHost != "":
		return no(infrav1.NoHostReason, keepMessage(s, infrav1.NoHostReason, s.noHost))
	default:
		return no(infrav1.NoHostReason, "Choosing a host")
	}
}

// keepMessage returns the former message if only numbers of hosts changed in it.
// Otherwise each change of a host would cost a write for each waiting machine.
func keepMessage(s *scope, reason, message string) string {
	was := meta.FindStatusCondition(s.machine.Status.Conditions, infrav1.HostClaimedCondition)
	if was != nil && was.Reason == reason && withoutDigits(was.Message) == withoutDigits(message) {
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
	case op == nil && plan.Paused(s.host):
		return no(clusterv1.PausedReason, fmt.Sprintf(
			"The bootstrap waits until the annotation %s is removed from host %s", clusterv1.PausedAnnotation, s.host.Name))
	case op == nil || op.State == infrav1.OperationRunning:
		// The ElementalHost shows the progress; repeating it here would double the writes.
		return no(infrav1.BootstrappingReason, "Host "+s.host.Name+" is to run the bootstrap data; its progress is in the ElementalHost"+preparation(s))
	case op.State == infrav1.OperationFailed, op.State == infrav1.OperationUnsupported:
		what, at := "bootstrap", ""
		// Without its owner, a machine may name a host that has no claim any more.
		if claim := s.host.Spec.Claim; claim != nil && claim.Adoption != nil {
			what = "adoption"
		}
		if op.Step != "" {
			at = " at step " + op.Step
		}
		return no(infrav1.BootstrapFailedReason, fmt.Sprintf("The %s failed on host %s%s: %s%s", what, s.host.Name, at, op.Message, preparation(s)))
	default:
		return no(infrav1.BootstrappingReason, "Host "+s.host.Name+" is bootstrapped; recording it")
	}
}

func preparation(s *scope) string {
	if s.preparation == "" {
		return ""
	}
	return ". " + s.preparation
}

// ready returns the condition Ready: the first condition that is not true, if any.
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
	if s.host == nil || s.timedOut {
		return no(infrav1.DeletingReason, "The machine is let go")
	}
	if s.host.InMaintenance() {
		// Unknown, so that the end of maintenance is a transition: remainingWait counts
		// from its time.
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
	if plan.Paused(s.host) && s.host.Operation(infrav1.OperationReset, s.machine.Spec.HostRef.ClaimID) == nil {
		return no(clusterv1.PausedReason, fmt.Sprintf(
			"The reset of host %s waits until the annotation %s is removed from the ElementalHost", s.host.Name, clusterv1.PausedAnnotation))
	}
	if !s.host.IsConnected() {
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
