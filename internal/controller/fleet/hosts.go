package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// longestOperation bounds what a host may say of the duration of an operation.
const longestOperation = 24 * time.Hour

// hostMetrics observes changes of ElementalHosts.
type hostMetrics struct {
	states, durations             *prometheus.HistogramVec
	operations, failures, updates *prometheus.CounterVec
}

func newHostMetrics() *hostMetrics {
	m := &hostMetrics{
		states: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "elemental", Subsystem: "host", Name: "state_duration_seconds",
			Help:    "Time that an ElementalHost was in a state: the reason of its condition Ready. It is observed when the state ends, and only for states whose begin this manager saw.",
			Buckets: lifeBuckets(),
		}, []string{"state"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "elemental", Subsystem: "host", Name: "operation_duration_seconds",
			Help:    "Time that an operation took on its host, by the host's clock, by type and result, as for elemental_host_operations_total.",
			Buckets: lifeBuckets(),
		}, []string{"type", "result"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "host", Name: "operations_total",
			Help: "Operations that ended, by type (Bootstrap, Reset, Reboot, Upgrade, NodeUpgrade, EtcdRestore, CertificateRenewal, ControlPlaneHalt, ControlPlaneStart) and result: Succeeded, Failed, Unsupported.",
		}, []string{"type", "result"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "host", Name: "operation_failures_total",
			Help: "Operations that failed, by type and step: the first word of the step that the host names, or other if it is none of the agent's.",
		}, []string{"type", "step"}),
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "host", Name: "agent_updates_total",
			Help: "Updates of agents that ended, by result: Succeeded, Failed, Unsupported.",
		}, []string{"result"}),
	}
	// From the start, so that the first one is an increase.
	for _, result := range []infrav1.OperationState{infrav1.OperationSucceeded, infrav1.OperationFailed, infrav1.OperationUnsupported} {
		m.updates.WithLabelValues(string(result))
		for _, kind := range []infrav1.OperationType{
			infrav1.OperationBootstrap, infrav1.OperationReset, infrav1.OperationReboot, infrav1.OperationUpgrade, infrav1.OperationNodeUpgrade,
			infrav1.OperationEtcdRestore, infrav1.OperationCertificateRenewal,
			infrav1.OperationControlPlaneHalt, infrav1.OperationControlPlaneStart,
		} {
			m.operations.WithLabelValues(string(kind), string(result))
		}
	}
	return m
}

func (m *hostMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.states, m.durations, m.operations, m.failures, m.updates}
}

func (m *hostMetrics) observe(before, after *infrav1.ElementalHost) {
	for i := range after.Status.Operations {
		op := &after.Status.Operations[i]
		if was := before.Operation(op.Type, op.ID); hasEnded(op.State) && (was == nil || !hasEnded(was.State)) {
			m.ended(op)
		}
	}
	if is := updateOf(after); hasEnded(is.State) && updateOf(before) != is {
		m.updates.WithLabelValues(string(is.State)).Inc()
	}
}

// ended counts an operation that has ended. The API server admits no other types and states than
// those of the API.
func (m *hostMetrics) ended(op *infrav1.HostOperation) {
	m.operations.WithLabelValues(string(op.Type), string(op.State)).Inc()
	if op.State == infrav1.OperationFailed {
		m.failures.WithLabelValues(string(op.Type), stepLabel(op.Step)).Inc()
	}
	took := op.FinishedAt.Sub(op.StartedAt.Time)
	if !op.StartedAt.IsZero() && !op.FinishedAt.IsZero() && took >= 0 && took <= longestOperation {
		m.durations.WithLabelValues(string(op.Type), string(op.State)).Observe(took.Seconds())
	}
}

func hasEnded(s infrav1.OperationState) bool {
	return s == infrav1.OperationSucceeded || s == infrav1.OperationFailed || s == infrav1.OperationUnsupported
}

// updateOf returns version and state of the host's last update of the agent; none without one.
func updateOf(h *infrav1.ElementalHost) infrav1.AgentUpdate {
	if h.Status.Agent == nil || h.Status.Agent.Update == nil {
		return infrav1.AgentUpdate{}
	}
	update := *h.Status.Agent.Update
	update.Message = ""
	return update
}

// stepLabel returns the first word of a step, if the agent has such steps. What follows it, such as
// the name of a file, is the user's.
func stepLabel(step string) string {
	word, _, _ := strings.Cut(step, " ")
	word, _, _ = strings.Cut(word, "[") // write_files[3]
	switch {
	case word == "":
		return none
	case slices.Contains(stepWords(), word):
		return word
	default:
		return other
	}
}

// stepWords are the words that steps of the agent begin with.
func stepWords() []string {
	return []string{
		// Bootstrap, and the parts of its bootstrap data.
		"adopt", "fetch", "check", "parse", "stage", "install", "hostname", "files", "node",
		"bootcmd", "runcmd", "script", "file", "write_files", "unit", "units", "ntp", "fstab",
		// Reset.
		"owner", "stop", "reboot", "clean", "verify", "erase", "recovery",
		// Upgrade and NodeUpgrade.
		"upgrade", "checkpoint", "kubeadm", "drain", "kubelet", "gate", "finish", "rollback", "image",
		// EtcdRestore, which may begin with fetch or check, ControlPlaneHalt and ControlPlaneStart.
		"rebuild", "prepare", "halt", "copy", "swap", "start", "nodes",
		// CertificateRenewal, which shares the others.
		"renew", "restart",
	}
}
