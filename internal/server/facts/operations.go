package facts

import (
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	maxOperations  = 8
	maxOperationID = 63
	maxStep        = 128
)

// Operation is a reported operation.
type Operation struct {
	infrav1.HostOperation
	// Erased are the results of erasing disks, if the operation erased any.
	Erased []infrav1.ErasedDisk
}

// OperationsOf converts and bounds reported operations. No plan has an operation
// without an ID or of an unknown type, so a report of one is refused.
func OperationsOf(in []protocol.OperationReport) ([]Operation, error) {
	if len(in) > maxOperations {
		return nil, problem.BadRequest("The report has too many operations")
	}
	var out []Operation
	for _, r := range in {
		op := infrav1.HostOperation{
			Type:       infrav1.OperationType(r.Type),
			ID:         r.ID,
			State:      infrav1.OperationState(r.State),
			Step:       bounded(r.Step, maxStep),
			Message:    bounded(r.Message, protocol.MaxMessageBytes),
			StartedAt:  timeOf(r.StartedAt),
			FinishedAt: timeOf(r.FinishedAt),
		}
		switch op.Type {
		case infrav1.OperationBootstrap, infrav1.OperationReset, infrav1.OperationReboot, infrav1.OperationUpgrade,
			infrav1.OperationNodeUpgrade, infrav1.OperationEtcdRestore, infrav1.OperationCertificateRenewal,
			infrav1.OperationControlPlaneHalt, infrav1.OperationControlPlaneStart:
		default:
			return nil, problem.BadRequest("The report has an operation of an unknown type")
		}
		if r.State != protocol.StateRunning && !r.State.Final() {
			return nil, problem.BadRequest("The report has an operation in an unknown state")
		}
		if op.ID == "" || len(op.ID) > maxOperationID {
			return nil, problem.BadRequest("The report has an operation without a proper ID")
		}
		report := Operation{HostOperation: op}
		if op.Type == infrav1.OperationReset {
			report.Erased = erasedOf(r.Erased)
		}
		out = append(out, report)
	}
	return out, nil
}

// timeOf converts a time of the host's clock to the stored precision. The clock may be
// far off.
func timeOf(t *time.Time) metav1.Time {
	if t == nil || t.Year() < 1 || t.Year() > 9999 {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

// RecordOperation puts a reported operation into the host's status. It changes nothing if
// the operation's end is already recorded. It returns a problem if the host's spec does
// not have the operation. Now is the manager's time.
func RecordOperation(host *infrav1.ElementalHost, op infrav1.HostOperation, now time.Time) error {
	i := slices.IndexFunc(host.Status.Operations, func(o infrav1.HostOperation) bool { return o.Type == op.Type })
	if i >= 0 && host.Status.Operations[i].ID == op.ID && OperationEnded(host.Status.Operations[i]) {
		return nil
	}
	if !requested(host, op) {
		return problem.NoOperation(http.StatusConflict)
	}
	countFailures(host, op, now)
	if i < 0 {
		host.Status.Operations = append(host.Status.Operations, op)
		return nil
	}
	host.Status.Operations[i] = op
	return nil
}

// countFailures counts the host's consecutive failed bootstraps, each once. A failure that
// is reported after the release began doesn't count: the agent aborts a running bootstrap
// for a reset, and reports that as a failure. Neither does a Node that was not taken over: the
// host has no fault.
func countFailures(host *infrav1.ElementalHost, op infrav1.HostOperation, now time.Time) {
	if op.Type != infrav1.OperationBootstrap {
		return
	}
	before := host.Status.Failures
	switch op.State {
	case infrav1.OperationSucceeded:
		host.Status.Failures = nil
	case infrav1.OperationFailed:
		if host.Spec.Claim.Phase == infrav1.ClaimReleasing || host.Spec.Claim.Adoption != nil {
			return
		}
		if before == nil {
			before = &infrav1.HostFailures{}
		}
		if before.LastOperationID != op.ID {
			host.Status.Failures = &infrav1.HostFailures{
				Consecutive: before.Consecutive + 1, LastOperationID: op.ID, LastTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
			}
		}
	case infrav1.OperationRunning, infrav1.OperationUnsupported:
	}
}

// OperationEnded reports whether the operation is in a state that is never left. The agent
// retries a failed reset.
func OperationEnded(op infrav1.HostOperation) bool {
	switch op.State {
	case infrav1.OperationSucceeded, infrav1.OperationUnsupported:
		return true
	case infrav1.OperationFailed:
		return op.Type != infrav1.OperationReset
	default:
		return false
	}
}

// requested reports whether the host's spec requests the operation. The end of a
// bootstrap may be reported after its release began. The reset of a bound host has succeeded before
// this management cluster was restored from an older backup.
func requested(host *infrav1.ElementalHost, op infrav1.HostOperation) bool {
	switch op.Type {
	case infrav1.OperationReboot:
		return host.Spec.Reboot != nil && host.Spec.Reboot.ID == op.ID
	case infrav1.OperationUpgrade:
		return host.Spec.OSUpgrade != nil && host.Spec.OSUpgrade.ID == op.ID
	case infrav1.OperationNodeUpgrade:
		return host.Spec.NodeUpgrade != nil && host.Spec.NodeUpgrade.ID == op.ID
	case infrav1.OperationEtcdRestore:
		return host.Spec.EtcdRestore != nil && host.Spec.EtcdRestore.ID == op.ID
	case infrav1.OperationCertificateRenewal:
		return host.Spec.CertificateRenewal != nil && host.Spec.CertificateRenewal.ID == op.ID
	case infrav1.OperationControlPlaneHalt, infrav1.OperationControlPlaneStart:
		return host.Spec.ControlPlaneHalt != nil && host.Spec.ControlPlaneHalt.ID == op.ID
	case infrav1.OperationBootstrap, infrav1.OperationReset:
	}
	claim := host.Spec.Claim
	return claim != nil && claim.ID == op.ID && requestedByClaim(claim, op)
}

// requestedByClaim is requested for a Bootstrap or Reset with the ID of the host's claim.
func requestedByClaim(claim *infrav1.HostClaim, op infrav1.HostOperation) bool {
	switch claim.Phase {
	case infrav1.ClaimBound:
		return op.Type == infrav1.OperationBootstrap || op.State == infrav1.OperationSucceeded
	case infrav1.ClaimHeld:
		return op.Type == infrav1.OperationBootstrap
	case infrav1.ClaimReleasing:
		return true
	case infrav1.ClaimReserved:
		return false
	default:
		return false
	}
}
