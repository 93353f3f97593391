package remediation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	defaultReboots         = 1
	defaultRecoverySeconds = 300
)

// action is what a reconcile does besides telling how things are.
type action int

const (
	actNothing action = iota
	actReboot
	actReplace
)

// decision is what is to be done, and how the condition Ready tells it.
type decision struct {
	act             action
	reason, message string
	// again is when to look again without an event; 0 for never.
	again time.Duration
	// attempt is the reboot to ask for, counted from 1.
	attempt int32
	// reboot says why there is none, where the host does not report that itself.
	reboot verdict
}

// verdict is a reason and a message of a condition that is not true.
type verdict struct{ reason, message string }

func stay(reason, format string, args ...any) decision {
	return decision{reason: reason, message: fmt.Sprintf(format, args...)}
}

// decide says what to do, from what was read. It writes nothing but the scope's
// decision and, where a wait begins, status.waitingSince.
func decide(s *scope) {
	if d, end := subject(s); end {
		s.decision = d
		return
	}
	if d, aside := standAside(s); aside {
		s.decision = d
		return
	}
	if s.aside {
		// What was not counted in between is not made up for.
		s.remediation.Status.WaitingSince = metav1.NewTime(s.now)
	}
	if !connected(s.host) {
		s.decision = silent(s)
		return
	}
	s.decision = responsive(s)
}

// subject checks that there is something to remedy. What is absent is no reason
// to act: it may not have been restored or moved here yet.
func subject(s *scope) (_ decision, end bool) {
	switch {
	case s.owner == nil:
		return stay(infrav1.MachineNotFoundReason, "The Machine that owns this object does not exist; there is nothing to remedy"), true
	case !s.owner.DeletionTimestamp.IsZero():
		return stay(infrav1.DeletingReason, "Machine %s is being deleted", s.owner.Name), true
	case meta.IsStatusConditionTrue(s.owner.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition):
		return stay(infrav1.RemediatedReason, "Machine %s passes its health check", s.owner.Name), true
	case meta.IsStatusConditionFalse(s.owner.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition):
		return replacing(s), true
	case s.machine == nil:
		return stay(infrav1.NoHostReason, "Machine %s has no ElementalMachine; there is nothing to remedy", s.owner.Name), true
	case s.machine.Spec.HostRef == nil:
		return stay(infrav1.NoHostReason, "Machine %s has no host yet; a replacement would not have one either", s.owner.Name), true
	case s.host == nil:
		return stay(infrav1.HostMissingReason, "Host %s does not exist or is not the machine's any more; "+
			"delete Machine %s to have it replaced, unless the host is about to be restored", s.machine.Spec.HostRef.Name, s.owner.Name), true
	default:
		return decision{}, false
	}
}

func replacing(s *scope) decision {
	if by := metav1.GetControllerOf(s.owner); by != nil {
		return stay(infrav1.ReplacingReason, "%s %s is to replace Machine %s; the Machine's condition OwnerRemediated tells how far it is",
			by.Kind, by.Name, s.owner.Name)
	}
	return stay(infrav1.NoReplacementReason, "Machine %s belongs to nothing that would replace it; delete it to have its host reset", s.owner.Name)
}

// standAside tells why nothing is to be done though the Machine is unhealthy.
func standAside(s *scope) (_ decision, aside bool) {
	switch spec := s.host.Spec; {
	case spec.Fence != nil:
		return stay(infrav1.FencedReason, "Host %s is given up already: %s", s.host.Name, spec.Fence.Reason), true
	case spec.Maintenance != nil:
		return stay(infrav1.MaintenanceReason, "Somebody works on host %s: %s", s.host.Name, spec.Maintenance.Reason), true
	case spec.Lock != nil:
		return stay(infrav1.IdentityClonedReason, "Host %s is locked, as two hosts use its key; remove spec.lock once one copy is destroyed", s.host.Name), true
	}
	if connected(s.host) {
		return decision{}, false
	}
	if _, message := light(s); message != "" {
		return stay(infrav1.SiteDarkReason, "%s", message), true
	}
	return decision{}, false
}

// stoodAside reports whether the conditions tell that nothing was done on purpose.
func stoodAside(r *infrav1.ElementalRemediation) bool {
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

// silent deals with a host that is not connected while others are.
func silent(s *scope) decision {
	witness, _ := light(s)
	if rest := remaining(s, latest(witness, s.began)); rest > 0 {
		d := stay(infrav1.DisconnectedReason, "Host %s is not connected, but others of the Cluster are; "+
			"the Machine is replaced unless the host returns within spec.recoverySeconds (%s)", s.host.Name, recovery(s))
		d.again = rest
		return d
	}
	return decision{act: actReplace}
}

// responsive deals with a host that is connected: it is rebooted as often as the
// spec allows, and replaced when that did not help.
func responsive(s *scope) decision {
	adopt(s)
	asked := s.remediation.Status.Reboots
	if asked > 0 {
		if d, end := rebooting(s, asked); end {
			return d
		}
	}
	if rest := remaining(s, time.Time{}); rest > 0 {
		return recovering(s, asked, rest)
	}
	next := asked + 1
	if withdrawn(s, asked) {
		next = asked
	}
	if next > ptr.Deref(s.remediation.Spec.Reboots, defaultReboots) {
		return decision{act: actReplace}
	}
	if why := unbootable(s.host); why != "" {
		return decision{act: actReplace, reboot: verdict{infrav1.RebootImpossibleReason, why}}
	}
	if other := pendingReboot(s.host); other != "" && other != requestID(s, next) {
		// It may help as well as ours would.
		return stay(infrav1.RebootRequestedReason, "Host %s is yet to be rebooted for somebody else (request %s)", s.host.Name, other)
	}
	d := stay(infrav1.RebootRequestedReason, "Host %s was asked to reboot (%d of %d)",
		s.host.Name, next, ptr.Deref(s.remediation.Spec.Reboots, defaultReboots))
	d.act, d.attempt, d.again = actReboot, next, recovery(s)
	return d
}

// adopt takes over a request that was made, but not recorded.
func adopt(s *scope) {
	status := &s.remediation.Status
	if next := status.Reboots + 1; s.host.Spec.Reboot != nil && s.host.Spec.Reboot.ID == requestID(s, next) {
		status.Reboots, status.WaitingSince = next, metav1.NewTime(s.now)
	}
}

// withdrawn reports whether a request was taken back before the host took notice.
func withdrawn(s *scope, attempt int32) bool {
	id := requestID(s, attempt)
	is := meta.FindStatusCondition(s.remediation.Status.Conditions, infrav1.RebootedCondition)
	return attempt > 0 && is != nil && is.Reason == infrav1.RebootRequestedReason &&
		s.host.Operation(infrav1.OperationReboot, id) == nil && pendingReboot(s.host) != id
}

// rebooting looks after the reboot that was asked for last. end is false when it
// is over, or has to be asked for again.
func rebooting(s *scope, attempt int32) (_ decision, end bool) {
	id := requestID(s, attempt)
	switch op := s.host.Operation(infrav1.OperationReboot, id); {
	case op == nil && pendingReboot(s.host) != id:
		return decision{}, false
	case op == nil || op.State == infrav1.OperationRunning:
		rest := remaining(s, time.Time{})
		if rest <= 0 {
			return decision{act: actReplace, reboot: verdict{infrav1.RebootFailedReason,
				fmt.Sprintf("Host %s did not report within spec.recoverySeconds (%s) that it has rebooted", s.host.Name, recovery(s))}}, true
		}
		d := stay(infrav1.RebootRequestedReason, "Host %s was asked to reboot (%d of %d)",
			s.host.Name, attempt, ptr.Deref(s.remediation.Spec.Reboots, defaultReboots))
		d.again = rest
		return d, true
	case op.State != infrav1.OperationSucceeded:
		return decision{act: actReplace, reboot: failure(s.host, op)}, true
	default:
		if !meta.IsStatusConditionTrue(s.remediation.Status.Conditions, infrav1.RebootedCondition) {
			s.remediation.Status.WaitingSince = metav1.NewTime(s.now)
		}
		return decision{}, false
	}
}

// failure says why a host was not rebooted.
func failure(host *infrav1.ElementalHost, op *infrav1.HostOperation) verdict {
	if op.State == infrav1.OperationUnsupported {
		return verdict{infrav1.RebootImpossibleReason, fmt.Sprintf("The agent of host %s can't reboot it", host.Name)}
	}
	return verdict{infrav1.RebootFailedReason, fmt.Sprintf("Host %s did not reboot: %s", host.Name, op.Message)}
}

func recovering(s *scope, asked int32, rest time.Duration) decision {
	d := stay(infrav1.RecoveringReason, "Host %s is there again; Machine %s has spec.recoverySeconds (%s) to become healthy",
		s.host.Name, s.owner.Name, recovery(s))
	if op := s.host.Operation(infrav1.OperationReboot, requestID(s, asked)); op != nil {
		d = stay(infrav1.RebootedReason, "Host %s was rebooted; Machine %s has spec.recoverySeconds (%s) to become healthy",
			s.host.Name, s.owner.Name, recovery(s))
	}
	d.again = rest
	return d
}

// unbootable says why a host that is connected can't be rebooted; blank if it can.
func unbootable(host *infrav1.ElementalHost) string {
	op := host.Operation(infrav1.OperationBootstrap, host.Spec.Claim.ID)
	switch {
	case host.Spec.Approval != infrav1.ApprovalApproved:
		return fmt.Sprintf("Host %s is not approved", host.Name)
	case !host.Supports(infrav1.OperationReboot):
		return fmt.Sprintf("The agent of host %s can't reboot it", host.Name)
	case op == nil || op.State != infrav1.OperationSucceeded:
		return fmt.Sprintf("Host %s is not bootstrapped, and is told nothing else before", host.Name)
	default:
		return ""
	}
}

// remaining is what is left of the time to become healthy: it counts from the
// latest of the wait's beginning, the last change of the connection, and since.
func remaining(s *scope, since time.Time) time.Duration {
	since = latest(since, s.remediation.Status.WaitingSince.Time)
	if c := s.host.Status.Connection; c != nil {
		since = latest(since, c.Since.Time)
	}
	return since.Add(recovery(s)).Sub(s.now)
}

func recovery(s *scope) time.Duration {
	return time.Duration(ptr.Deref(s.remediation.Spec.RecoverySeconds, defaultRecoverySeconds)) * time.Second
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func connected(host *infrav1.ElementalHost) bool {
	c := host.Status.Connection
	return c != nil && c.State == infrav1.ConnectionConnected
}
