package server

import (
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	maxOperations  = 8
	maxOperationID = 63
	maxStep        = 128
)

// reported is an operation that a host reports.
type reported struct {
	infrav1.HostOperation
	// erased is what became of disks, if the operation erased any.
	erased []infrav1.ErasedDisk
}

// operationsOf converts and bounds reported operations. An operation without an
// ID or of an unknown kind is nothing that a host was ever told to do.
func operationsOf(in []protocol.OperationReport) ([]reported, error) {
	if len(in) > maxOperations {
		return nil, errBadRequest("The report has too many operations")
	}
	var out []reported
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
		case infrav1.OperationBootstrap, infrav1.OperationReset, infrav1.OperationReboot, infrav1.OperationUpgrade:
		default:
			return nil, errBadRequest("The report has an operation of an unknown type")
		}
		if r.State != protocol.StateRunning && !r.State.Final() {
			return nil, errBadRequest("The report has an operation in an unknown state")
		}
		if op.ID == "" || len(op.ID) > maxOperationID {
			return nil, errBadRequest("The report has an operation without a proper ID")
		}
		report := reported{HostOperation: op}
		if op.Type == infrav1.OperationReset {
			report.erased = erasedOf(r.Erased)
		}
		out = append(out, report)
	}
	return out, nil
}

// timeOf converts a time of the host's clock, which may say anything, to the
// precision that is stored.
func timeOf(t *time.Time) metav1.Time {
	if t == nil || t.Year() < 1 || t.Year() > 9999 {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

// record puts a reported operation into the host's status. It changes nothing if
// the report repeats, or comes after, a recorded end; it fails if the host's
// spec does not name the operation. Now is the manager's time.
func record(host *infrav1.ElementalHost, op infrav1.HostOperation, now time.Time) error {
	i := slices.IndexFunc(host.Status.Operations, func(o infrav1.HostOperation) bool { return o.Type == op.Type })
	if i >= 0 && host.Status.Operations[i].ID == op.ID && ended(host.Status.Operations[i]) {
		return nil
	}
	if !named(host, op) {
		return errNoOperation(http.StatusConflict)
	}
	countFailures(host, op, now)
	if i < 0 {
		host.Status.Operations = append(host.Status.Operations, op)
		return nil
	}
	host.Status.Operations[i] = op
	return nil
}

// countFailures counts the host's bootstraps that failed in a row, each once. Those
// that are reported after their release began don't count: the agent ends what
// still runs when it is told to reset, and reports that as a failure.
func countFailures(host *infrav1.ElementalHost, op infrav1.HostOperation, now time.Time) {
	if op.Type != infrav1.OperationBootstrap {
		return
	}
	before := host.Status.Failures
	switch op.State {
	case infrav1.OperationSucceeded:
		host.Status.Failures = nil
	case infrav1.OperationFailed:
		if host.Spec.Claim.Phase == infrav1.ClaimReleasing {
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

// ended tells whether nothing can follow this state. The agent tries a failed
// reset again.
func ended(op infrav1.HostOperation) bool {
	switch op.State {
	case infrav1.OperationSucceeded, infrav1.OperationUnsupported:
		return true
	case infrav1.OperationFailed:
		return op.Type != infrav1.OperationReset
	default:
		return false
	}
}

// named tells whether the claim or a request makes the host run the operation. The
// end of a bootstrap may be reported after its release began.
func named(host *infrav1.ElementalHost, op infrav1.HostOperation) bool {
	switch op.Type {
	case infrav1.OperationReboot:
		return host.Spec.Reboot != nil && host.Spec.Reboot.ID == op.ID
	case infrav1.OperationUpgrade:
		return host.Spec.OSUpgrade != nil && host.Spec.OSUpgrade.ID == op.ID
	case infrav1.OperationBootstrap, infrav1.OperationReset:
	}
	claim := host.Spec.Claim
	if claim == nil || claim.ID != op.ID {
		return false
	}
	switch claim.Phase {
	case infrav1.ClaimBound, infrav1.ClaimHeld:
		return op.Type == infrav1.OperationBootstrap
	case infrav1.ClaimReleasing:
		return true
	case infrav1.ClaimReserved:
		return false
	default:
		return false
	}
}
