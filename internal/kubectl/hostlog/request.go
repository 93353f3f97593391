package hostlog

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Operations returns the types of operations that have logs, by the names that people type.
func Operations() map[string]infrav1.OperationType {
	return map[string]infrav1.OperationType{
		"bootstrap": infrav1.OperationBootstrap, "reset": infrav1.OperationReset, "reboot": infrav1.OperationReboot,
		"upgrade": infrav1.OperationUpgrade, "nodeupgrade": infrav1.OperationNodeUpgrade, "etcdrestore": infrav1.OperationEtcdRestore,
		"certificaterenewal": infrav1.OperationCertificateRenewal,
		"controlplanehalt":   infrav1.OperationControlPlaneHalt, "controlplanestart": infrav1.OperationControlPlaneStart,
	}
}

// Last returns the operation of the type that the host has reported last. With a blank type it
// is the bootstrap or the reset, whichever began last.
func Last(host *infrav1.ElementalHost, of infrav1.OperationType) (*infrav1.HostOperation, error) {
	var last *infrav1.HostOperation
	for i := range host.Status.Operations {
		op := &host.Status.Operations[i]
		isWanted := op.Type == of || of == "" && (op.Type == infrav1.OperationBootstrap || op.Type == infrav1.OperationReset)
		if isWanted && (last == nil || last.StartedAt.Before(&op.StartedAt)) {
			last = op
		}
	}
	switch {
	case last != nil:
		return last, nil
	case of == "":
		return nil, refuse(host, "it has reported no bootstrap and no reset, so there is nothing to show", "Name another operation with --operation")
	default:
		return nil, refuse(host, fmt.Sprintf("it has reported no %s, so there is nothing to show", of), "Name another operation with --operation")
	}
}

// Current returns the log that is there already, if it is the whole log of the operation.
func Current(host *infrav1.ElementalHost, op *infrav1.HostOperation, now time.Time) *infrav1.HostLog {
	log := host.Status.Log
	isCurrent := log != nil && log.SecretName != "" && log.Operation == op.Type && log.OperationID == op.ID &&
		log.State == op.State && op.State != infrav1.OperationRunning && now.Before(log.ExpiresAt.Time)
	if !isCurrent {
		return nil
	}
	return log
}

// Ask plans to ask the host for the log of an operation, and returns the ID of the request. The
// request ends at a time.
func Ask(host *infrav1.ElementalHost, of infrav1.OperationType, until, now time.Time) (p *change.Plan, id string, err error) {
	if err := check(host); err != nil {
		return nil, "", err
	}
	if pending := host.Spec.LogRequest; pending != nil && now.Before(pending.Until.Time) {
		if pending.Operation == of {
			return nil, pending.ID, nil
		}
		return nil, "", refuse(host, fmt.Sprintf("somebody asks it for the log of its last %s, until %s", pending.Operation, pending.Until.UTC().Format(time.RFC3339)),
			"Try again then, or after the answer")
	}
	id = string(uuid.NewUUID())
	p = change.Patch("ElementalHost", host, "ask for the log of its last "+string(of), func(h *infrav1.ElementalHost) {
		h.Spec.LogRequest = &infrav1.HostLogRequest{ID: id, Operation: of, Until: metav1.NewTime(until.UTC().Truncate(time.Second))}
	}, func(*infrav1.ElementalHost, time.Time) string { return "it is asked" })
	return p, id, nil
}

// Withdraw plans to withdraw a request; nil if it is not there any more.
func Withdraw(host *infrav1.ElementalHost, id string) *change.Plan {
	if host.Spec.LogRequest == nil || host.Spec.LogRequest.ID != id {
		return nil
	}
	return change.Patch("ElementalHost", host, "withdraw the request", func(h *infrav1.ElementalHost) { h.Spec.LogRequest = nil },
		func(*infrav1.ElementalHost, time.Time) string { return "it is not asked any more" })
}

// Answers reports whether a host has run a bootstrap or a reset, and would send its log.
func Answers(host *infrav1.ElementalHost) bool {
	if _, err := Last(host, ""); err != nil {
		return false
	}
	return check(host) == nil
}

// check refuses to ask a host that would not answer.
func check(host *infrav1.ElementalHost) error {
	const onHost = "The log is in /var/lib/elemental/agent/logs on the host"
	switch {
	case !host.DeletionTimestamp.IsZero():
		return refuse(host, "it is being deleted", onHost)
	case host.Spec.Approval != infrav1.ApprovalApproved:
		return refuse(host, "it is not approved, so it is asked for nothing", "Approve it first")
	case host.Spec.Lock != nil:
		return refuse(host, "it is locked, because two machines use its key", "Find the copy first: kubectl elemental explain host "+host.Name)
	case host.Spec.Fence != nil:
		return refuse(host, "it is fenced, so it may only be reset", "End the fence first, or look on the host: "+strings.ToLower(onHost[:1])+onHost[1:])
	case plan.Paused(host):
		return refuse(host, "it is paused", "Remove the annotation that pauses it first")
	case !host.IsConnected():
		return refuse(host, "it is not connected, so it can't be asked", onHost)
	case !host.Supports(infrav1.OperationType(protocol.CapabilityLogs)):
		return refuse(host, "its agent is too old: it keeps no logs", "Update the agent, or look at its journal on the host: journalctl -u elemental-agent")
	default:
		return nil
	}
}

func refuse(host *infrav1.ElementalHost, reason, remedy string) error {
	return &change.Refusal{Subject: fmt.Sprintf("ElementalHost %s/%s", host.Namespace, host.Name), Reason: reason, Remedy: remedy}
}
