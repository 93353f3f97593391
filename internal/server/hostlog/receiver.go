package hostlog

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch

const (
	// lifetime is how long a log is kept.
	lifetime = time.Hour
	// maxLogs is how many logs a namespace has at a time. Each may have 1 MiB of etcd.
	maxLogs = 32
	// fullDelay is when a host tries again to send a log for which there is no room.
	fullDelay = time.Minute
	// maxRedactions bounds what a host says about its log.
	maxRedactions = 1 << 20
)

// Receiver takes logs of hosts.
type Receiver struct {
	// Client reads hosts from the cache, and writes Secrets; APIReader reads past the cache.
	Client    client.Client
	APIReader client.Reader
	Hosts     *hoststore.Store
	Audit     *audit.Log
	// Recorder records Events on ElementalHosts.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// Check returns a problem unless the host, with that key, is asked for a log by the request and is
// not fenced.
func (r *Receiver) Check(host *infrav1.ElementalHost, fingerprint, request string) error {
	if !hoststore.AcceptsKey(host, fingerprint) {
		return problem.UnknownHost()
	}
	if host.Spec.Fence != nil {
		return problem.Fenced()
	}
	wanted := plan.For(host, plan.Site{}, plan.Cluster{}).Desired.Log
	if wanted == nil || wanted.ID != request || !r.Clock.Now().Before(host.Spec.LogRequest.Until.Time) {
		return notRequested()
	}
	return nil
}

func notRequested() error {
	return problem.New(http.StatusNotFound, problem.Blank, "The host is asked for no such log")
}

// Accept keeps the log of a host. It may be repeated, and the first log of a request stays.
func (r *Receiver) Accept(ctx context.Context, key types.NamespacedName, fingerprint, request string, log protocol.HostLog) error {
	// The host as it is now: the request may have been withdrawn.
	host, err := r.Hosts.ReadLive(ctx, key)
	if err != nil {
		return err
	}
	if err := r.Check(host, fingerprint, request); err != nil {
		return err
	}
	if log.Operation != protocol.OperationType(host.Spec.LogRequest.Operation) {
		return problem.BadRequest("The log is not of the operation that the host is asked for")
	}
	if err := r.checkRoom(ctx, host); err != nil {
		return err
	}
	host, err = r.Hosts.UpdateStatus(ctx, key, func(newest *infrav1.ElementalHost) error {
		if err := r.Check(newest, fingerprint, request); err != nil {
			return err
		}
		if newest.Status.Log == nil || newest.Status.Log.ID != request {
			newest.Status.Log = r.describe(newest, log)
		}
		return nil
	})
	if err != nil {
		return err
	}
	answer := *host.Status.Log
	if answer.SecretName != "" {
		if err := r.writeSecret(ctx, host, log.Text); err != nil {
			return err
		}
	}
	_, err = r.Hosts.UpdateSpec(ctx, key, func(newest *infrav1.ElementalHost) error {
		if asked := newest.Spec.LogRequest; asked != nil && asked.ID == request {
			newest.Spec.LogRequest = nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Audit.Record(ctx, audit.LogReceived, host, "request", answer.ID, "operation", string(answer.Operation), "operationID", answer.OperationID,
		"secretName", answer.SecretName, "bytes", len(log.Text))
	r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, infrav1.LogReceivedReason, "ReceiveLog", "%s", message(answer))
	return nil
}

// checkRoom returns a problem if the namespace has as many logs as it may have.
func (r *Receiver) checkRoom(ctx context.Context, host *infrav1.ElementalHost) error {
	if host.Status.Log != nil {
		return nil // the log replaces it
	}
	list := &infrav1.ElementalHostList{}
	if err := r.Client.List(ctx, list, client.InNamespace(host.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("counting logs: %w", err)
	}
	logs := 0
	for i := range list.Items {
		if list.Items[i].Status.Log != nil {
			logs++
		}
	}
	if logs >= maxLogs {
		return problem.Busy(fullDelay)
	}
	return nil
}

// describe returns what the status says of a log.
func (r *Receiver) describe(host *infrav1.ElementalHost, log protocol.HostLog) *infrav1.HostLog {
	asked := host.Spec.LogRequest
	described := &infrav1.HostLog{
		ID: asked.ID, Operation: asked.Operation, ExpiresAt: metav1.NewTime(r.Clock.Now().Add(lifetime).Truncate(time.Second)),
	}
	if log.OperationID == "" {
		return described
	}
	described.OperationID = strings.ToValidUTF8(log.OperationID[:min(len(log.OperationID), 63)], "")
	switch state := infrav1.OperationState(log.State); state {
	case infrav1.OperationRunning, infrav1.OperationSucceeded, infrav1.OperationFailed, infrav1.OperationUnsupported:
		described.State = state
	}
	described.SecretName = infrav1.LogSecretName(host)
	described.Redactions = int32(min(max(log.Redactions, 0), maxRedactions))
	described.CutBytes = max(log.CutBytes, 0)
	return described
}

// message says what the host has sent.
func message(log infrav1.HostLog) string {
	if log.SecretName == "" {
		return fmt.Sprintf("The host has no log of a %s", log.Operation)
	}
	return fmt.Sprintf("The log of %s %s is in Secret %s until %s", log.Operation, log.OperationID, log.SecretName, log.ExpiresAt.UTC().Format(time.RFC3339))
}

// printable returns the text of a log within its limit and without what a terminal would take for
// a command: the agent's word is no guarantee.
func printable(text []byte) []byte {
	text = text[:min(len(text), protocol.MaxLogBytes)]
	return []byte(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(text), "")))
}
