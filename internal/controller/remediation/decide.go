package remediation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

const (
	defaultReboots         = 1
	defaultRecoverySeconds = 300
)

// action is what a reconcile does apart from setting conditions.
type action int

const (
	actionNone action = iota
	actionReboot
	actionReplace
)

// decision is the action to take, with the reason and message of the condition Ready.
type decision struct {
	action          action
	reason, message string
	// requeueAfter is when to reconcile again without an event; 0 for never.
	requeueAfter time.Duration
	// attempt is the number of the reboot to request, counted from 1.
	attempt int32
	// rebootFailure is set if a reboot failed or is impossible.
	rebootFailure failure
}

// failure is the reason and the message of a condition that is not true.
type failure struct{ reason, message string }

// wait returns a decision without an action.
func noAction(reason, format string, args ...any) decision {
	return decision{reason: reason, message: fmt.Sprintf(format, args...)}
}

// decide sets s.decision and, if a wait begins, status.waitingSince. It does no I/O.
func decide(s *scope) {
	if d, done := checkSubject(s); done {
		s.decision = d
		return
	}
	if d, suspend := checkSuspended(s); suspend {
		s.decision = d
		return
	}
	if s.suspended {
		// The time of the suspension does not count.
		s.remediation.Status.WaitingSince = metav1.NewTime(s.now)
	}
	if !s.host.IsConnected() {
		s.decision = decideDisconnected(s)
		return
	}
	s.decision = decideConnected(s)
}

// checkSubject reports whether there is nothing to remediate, with the decision. A
// missing object is no reason to act: it may not have been restored or moved yet.
func checkSubject(s *scope) (_ decision, done bool) {
	switch {
	case s.owner == nil:
		return noAction(infrav1.MachineNotFoundReason, "The Machine that owns this object does not exist; there is nothing to remedy"), true
	case !s.owner.DeletionTimestamp.IsZero():
		return noAction(infrav1.DeletingReason, "Machine %s is being deleted", s.owner.Name), true
	case meta.IsStatusConditionTrue(s.owner.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition):
		return noAction(infrav1.RemediatedReason, "Machine %s passes its health check", s.owner.Name), true
	case meta.IsStatusConditionFalse(s.owner.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition):
		return replacing(s), true
	case s.machine == nil:
		return noAction(infrav1.NoHostReason, "Machine %s has no ElementalMachine; there is nothing to remedy", s.owner.Name), true
	case s.machine.Spec.HostRef == nil:
		return noAction(infrav1.NoHostReason, "Machine %s has no host yet; a replacement would wait, too. "+
			"If another failure domain has a host, a control-plane Machine is replaced without a remediation", s.owner.Name), true
	case s.host == nil:
		return noAction(infrav1.HostMissingReason, "Host %s does not exist or is not the machine's any more; "+
			"delete Machine %s to have it replaced, unless the host is about to be restored", s.machine.Spec.HostRef.Name, s.owner.Name), true
	default:
		return decision{}, false
	}
}

func replacing(s *scope) decision {
	if by := metav1.GetControllerOf(s.owner); by != nil {
		return noAction(infrav1.ReplacingReason, "%s %s is to replace Machine %s; the Machine's condition OwnerRemediated tells how far it is",
			by.Kind, by.Name, s.owner.Name)
	}
	return noAction(infrav1.NoReplacementReason, "Machine %s belongs to nothing that would replace it; delete it to have its host reset", s.owner.Name)
}

// checkSuspended reports whether the remediation must not act although the Machine is
// unhealthy, with the decision.
func checkSuspended(s *scope) (_ decision, suspend bool) {
	switch spec := s.host.Spec; {
	case spec.Fence != nil:
		return noAction(infrav1.FencedReason, "Host %s is given up already: %s", s.host.Name, spec.Fence.Reason), true
	case s.host.InMaintenance():
		return noAction(infrav1.MaintenanceReason, "Somebody works on host %s: %s", s.host.Name, spec.Maintenance.Reason), true
	case spec.Lock != nil:
		return noAction(infrav1.IdentityClonedReason, "Host %s is locked, as two hosts use its key; remove spec.lock once one copy is destroyed", s.host.Name), true
	}
	if s.host.IsConnected() {
		return decision{}, false
	}
	if _, offline := siteOnlineSince(s); offline != "" {
		return noAction(infrav1.SiteDarkReason, "%s", offline), true
	}
	return decision{}, false
}

// wasSuspended reports whether the conditions show that the last reconcile did not act
// on purpose.
func wasSuspended(r *infrav1.ElementalRemediation) bool {
	if meta.IsStatusConditionTrue(r.Status.Conditions, clusterv1.PausedCondition) {
		return true
	}
	ready := meta.FindStatusCondition(r.Status.Conditions, infrav1.ReadyCondition)
	if ready == nil {
		return false
	}
	switch ready.Reason {
	case infrav1.FencedReason, infrav1.MaintenanceReason, infrav1.IdentityClonedReason, infrav1.SiteDarkReason:
		return true
	default:
		return false
	}
}

// decideDisconnected decides on a host that is not connected while its site is online.
func decideDisconnected(s *scope) decision {
	witness, _ := siteOnlineSince(s)
	if rest := remainingWait(s, reconcile.Later(witness, s.startedAt)); rest > 0 {
		d := noAction(infrav1.DisconnectedReason, "Host %s is not connected, but others of the Cluster are; "+
			"the Machine is replaced unless the host returns within spec.recoverySeconds (%s)", s.host.Name, recovery(s))
		d.requeueAfter = rest
		return d
	}
	return decision{action: actionReplace}
}

// decideConnected decides on a host that is connected. It is rebooted at most
// spec.reboots times; then its Machine is replaced.
func decideConnected(s *scope) decision {
	adoptReboot(s)
	last := s.remediation.Status.Reboots
	if last > 0 {
		if d, done := checkReboot(s, last); done {
			return d
		}
	}
	if rest := remainingWait(s, time.Time{}); rest > 0 {
		return recovering(s, last, rest)
	}
	next := last + 1
	if withdrawn(s, last) {
		next = last
	}
	if next > ptr.Deref(s.remediation.Spec.Reboots, defaultReboots) {
		return decision{action: actionReplace}
	}
	if reason := whyNoReboot(s.host); reason != "" {
		return decision{action: actionReplace, rebootFailure: failure{infrav1.RebootImpossibleReason, reason}}
	}
	if other := pendingReboot(s.host); other != "" && other != requestID(s, next) {
		// Another client's reboot may help as well.
		return noAction(infrav1.RebootRequestedReason, "Host %s must first finish a reboot that another client requested (%s)", s.host.Name, other)
	}
	d := noAction(infrav1.RebootRequestedReason, "Host %s was asked to reboot (%d of %d)",
		s.host.Name, next, ptr.Deref(s.remediation.Spec.Reboots, defaultReboots))
	d.action, d.attempt, d.requeueAfter = actionReboot, next, recovery(s)
	return d
}

// adoptReboot records a reboot in status that was requested by a reconcile whose status
// write was lost.
func adoptReboot(s *scope) {
	status := &s.remediation.Status
	if next := status.Reboots + 1; s.host.Spec.Reboot != nil && s.host.Spec.Reboot.ID == requestID(s, next) {
		status.Reboots, status.WaitingSince = next, metav1.NewTime(s.now)
	}
}

// withdrawn reports whether the reboot was withdrawn before the host started it.
func withdrawn(s *scope, attempt int32) bool {
	id := requestID(s, attempt)
	is := meta.FindStatusCondition(s.remediation.Status.Conditions, infrav1.RebootedCondition)
	return attempt > 0 && is != nil && is.Reason == infrav1.RebootRequestedReason &&
		s.host.Operation(infrav1.OperationReboot, id) == nil && pendingReboot(s.host) != id
}

// checkReboot checks the last requested reboot. It reports false if the reboot succeeded
// or must be requested again.
func checkReboot(s *scope, attempt int32) (_ decision, done bool) {
	id := requestID(s, attempt)
	switch op := s.host.Operation(infrav1.OperationReboot, id); {
	case op == nil && pendingReboot(s.host) != id:
		return decision{}, false
	case op == nil || op.State == infrav1.OperationRunning:
		rest := remainingWait(s, time.Time{})
		if rest <= 0 {
			return decision{action: actionReplace, rebootFailure: failure{infrav1.RebootFailedReason,
				fmt.Sprintf("Host %s did not report within spec.recoverySeconds (%s) that it has rebooted", s.host.Name, recovery(s))}}, true
		}
		d := noAction(infrav1.RebootRequestedReason, "Host %s was asked to reboot (%d of %d)",
			s.host.Name, attempt, ptr.Deref(s.remediation.Spec.Reboots, defaultReboots))
		d.requeueAfter = rest
		return d, true
	case op.State != infrav1.OperationSucceeded:
		return decision{action: actionReplace, rebootFailure: rebootFailure(s.host, op)}, true
	default:
		if !meta.IsStatusConditionTrue(s.remediation.Status.Conditions, infrav1.RebootedCondition) {
			s.remediation.Status.WaitingSince = metav1.NewTime(s.now)
		}
		return decision{}, false
	}
}

// rebootFailure returns why the host did not reboot.
func rebootFailure(host *infrav1.ElementalHost, op *infrav1.HostOperation) failure {
	if op.State == infrav1.OperationUnsupported {
		return failure{infrav1.RebootImpossibleReason, fmt.Sprintf("The agent of host %s can't reboot it", host.Name)}
	}
	return failure{infrav1.RebootFailedReason, fmt.Sprintf("Host %s did not reboot: %s", host.Name, op.Message)}
}

func recovering(s *scope, attempt int32, rest time.Duration) decision {
	d := noAction(infrav1.RecoveringReason, "Host %s is there again; Machine %s has spec.recoverySeconds (%s) to become healthy",
		s.host.Name, s.owner.Name, recovery(s))
	if op := s.host.Operation(infrav1.OperationReboot, requestID(s, attempt)); op != nil {
		d = noAction(infrav1.RebootedReason, "Host %s was rebooted; Machine %s has spec.recoverySeconds (%s) to become healthy",
			s.host.Name, s.owner.Name, recovery(s))
	}
	d.requeueAfter = rest
	return d
}

// whyNoReboot returns why a connected host can't be rebooted; blank if it can.
func whyNoReboot(host *infrav1.ElementalHost) string {
	op := host.Operation(infrav1.OperationBootstrap, host.Spec.Claim.ID)
	reset := host.Operation(infrav1.OperationReset, host.Spec.Claim.ID)
	switch {
	case reset != nil && reset.State == infrav1.OperationSucceeded:
		return fmt.Sprintf("Host %s was reset before this management cluster was restored from a backup, and has no Node of the Machine", host.Name)
	case host.Spec.Approval != infrav1.ApprovalApproved:
		return fmt.Sprintf("Host %s is not approved", host.Name)
	case !host.Supports(infrav1.OperationReboot):
		return fmt.Sprintf("The agent of host %s can't reboot it", host.Name)
	case op == nil || op.State != infrav1.OperationSucceeded:
		return fmt.Sprintf("Host %s is not bootstrapped, and runs no other operation before", host.Name)
	default:
		return ""
	}
}

// remainingWait returns the remaining time to become healthy. It counts from the latest
// of status.waitingSince, the last change of the connection, and since.
func remainingWait(s *scope, since time.Time) time.Duration {
	since = reconcile.Later(since, s.remediation.Status.WaitingSince.Time)
	if c := s.host.Status.Connection; c != nil {
		since = reconcile.Later(since, c.Since.Time)
	}
	return since.Add(recovery(s)).Sub(s.now)
}

func recovery(s *scope) time.Duration {
	return time.Duration(ptr.Deref(s.remediation.Spec.RecoverySeconds, defaultRecoverySeconds)) * time.Second
}
