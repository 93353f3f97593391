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

// operationsOf converts and bounds reported operations. An operation without an
// ID or of an unknown kind is nothing that a host was ever told to do.
func operationsOf(in []protocol.OperationReport) ([]infrav1.HostOperation, error) {
	if len(in) > maxOperations {
		return nil, errBadRequest("The report has too many operations")
	}
	var out []infrav1.HostOperation
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
		if op.Type != infrav1.OperationBootstrap && op.Type != infrav1.OperationReset {
			return nil, errBadRequest("The report has an operation of an unknown type")
		}
		if r.State != protocol.StateRunning && !r.State.Final() {
			return nil, errBadRequest("The report has an operation in an unknown state")
		}
		if op.ID == "" || len(op.ID) > maxOperationID {
			return nil, errBadRequest("The report has an operation without a proper ID")
		}
		out = append(out, op)
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
// claim does not name the operation.
func record(host *infrav1.ElementalHost, op infrav1.HostOperation) error {
	i := slices.IndexFunc(host.Status.Operations, func(o infrav1.HostOperation) bool { return o.Type == op.Type })
	if i >= 0 && host.Status.Operations[i].ID == op.ID && ended(host.Status.Operations[i]) {
		return nil
	}
	if !named(host.Spec.Claim, op) {
		return errNoOperation(http.StatusConflict)
	}
	if i < 0 {
		host.Status.Operations = append(host.Status.Operations, op)
		return nil
	}
	host.Status.Operations[i] = op
	return nil
}

// ended tells whether nothing can follow this state. The agent tries a failed
// reset again.
func ended(op infrav1.HostOperation) bool {
	switch op.State {
	case infrav1.OperationSucceeded, infrav1.OperationUnsupported:
		return true
	case infrav1.OperationFailed:
		return op.Type == infrav1.OperationBootstrap
	default:
		return false
	}
}

// named tells whether the claim makes the host run the operation. The end of a
// bootstrap may be reported after its release began.
func named(claim *infrav1.HostClaim, op infrav1.HostOperation) bool {
	if claim == nil || claim.ID != op.ID {
		return false
	}
	switch claim.Phase {
	case infrav1.ClaimBound:
		return op.Type == infrav1.OperationBootstrap
	case infrav1.ClaimReleasing:
		return true
	default:
		return false
	}
}
