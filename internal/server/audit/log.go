package audit

import (
	"context"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Decision is a kind of security decision, as the log and the metric name it.
type Decision string

// Decisions.
const (
	Enrolled         Decision = "Enrolled"
	Bound            Decision = "Bound"
	Readopted        Decision = "Readopted"
	EnrolmentRefused Decision = "EnrolmentRefused"
	PendingLimit     Decision = "PendingLimit"
	TokenUsed        Decision = "TokenUsed"
	KeysForgotten    Decision = "KeysForgotten"
	Rotated          Decision = "Rotated"
	RotationRefused  Decision = "RotationRefused"
	Promoted         Decision = "Promoted"
	Locked           Decision = "Locked"
	Unlocked         Decision = "Unlocked"
	Fenced           Decision = "Fenced"
	Unfenced         Decision = "Unfenced"
	KeyRefused       Decision = "KeyRefused"
	BootstrapServed  Decision = "BootstrapServed"
	// SnapshotUploadGranted: a host may upload a snapshot of etcd.
	SnapshotUploadGranted Decision = "SnapshotUploadGranted"
	// ControlPlaneSetupServed: a host may set up its control plane again, and has the keys of the
	// cluster's certificate authorities.
	ControlPlaneSetupServed Decision = "ControlPlaneSetupServed"
	// SnapshotFetchGranted: a host may download a snapshot of etcd, and has its key.
	SnapshotFetchGranted Decision = "SnapshotFetchGranted"
	// LogReceived: a host has sent the log that a person asked for.
	LogReceived  Decision = "LogReceived"
	Approved     Decision = "Approved"
	Rejected     Decision = "Rejected"
	Pending      Decision = "Pending"
	TunnelOpened Decision = "TunnelOpened"
	TunnelEnded  Decision = "TunnelEnded"
	// Requested is a change that a user asks for. The API server may still refuse it.
	Requested Decision = "Requested"
)

// KeyInTwoHosts is the reason of a refusal of a key that two ElementalHosts have.
const KeyInTwoHosts = "KeyInTwoHosts"

// connectionKey is the context key of the connection of an HTTP request.
type connectionKey struct{}

// WithConnection returns a context for the HTTP requests of a connection, whose
// remote address is logged with their decisions.
func WithConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// Log is the audit log. It is safe for concurrent use.
type Log struct {
	decisions *prometheus.CounterVec
	logged    *deduper
}

// New returns a Log whose metric is registered.
func New(c clock.PassiveClock, registerer prometheus.Registerer) (*Log, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "elemental", Subsystem: "agent_api", Name: "decisions_total",
		Help: "Security decisions by kind, as in the audit log.",
	}, []string{"decision"})
	if err := registerer.Register(decisions); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return &Log{decisions: decisions, logged: newDeduper(c)}, nil
}

// Record logs and counts a decision. Host may be nil.
func (l *Log) Record(ctx context.Context, decision Decision, host *infrav1.ElementalHost, keysAndValues ...any) {
	l.decisions.WithLabelValues(string(decision)).Inc()
	log := ctrl.LoggerFrom(ctx).WithName("audit").WithValues("decision", decision)
	if conn, ok := ctx.Value(connectionKey{}).(net.Conn); ok {
		log = log.WithValues("source", conn.RemoteAddr().String())
	}
	if host != nil {
		log = log.WithValues("ElementalHost", klog.KObj(host), "hostID", clean(host.Spec.HostID))
	}
	log.Info("Decided", onOneLine(keysAndValues)...)
}

// RecordRepeatable is Record for a decision that a caller can cause at will: it is always
// counted, but logged once in ten minutes for each subject. It reports whether it
// was logged.
func (l *Log) RecordRepeatable(ctx context.Context, decision Decision, subject string, host *infrav1.ElementalHost, keysAndValues ...any) bool {
	if !l.logged.first(decision, subject) {
		l.decisions.WithLabelValues(string(decision)).Inc()
		return false
	}
	l.Record(ctx, decision, host, keysAndValues...)
	return true
}
