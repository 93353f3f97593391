package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
)

// Clusters looks up the cluster of a claimed host.
type Clusters interface {
	// InfraCluster returns nil if the cluster is unknown.
	InfraCluster(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.ElementalCluster, error)
	// EndpointExplainsFailure reports whether a bootstrap of the host may have failed
	// because of its cluster's control plane endpoint.
	EndpointExplainsFailure(ctx context.Context, host *infrav1.ElementalHost) (bool, error)
}

// Tunnels knows the tunnels of hosts.
type Tunnels interface {
	// Status returns what status.tunnel of the host has to be.
	Status(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.HostTunnel, error)
}

// Recorder writes ElementalHost status. It is safe for concurrent use.
type Recorder struct {
	hosts    *hoststore.Store
	sessions *session.Tracker
	budget   *session.WriteBudget
	clusters Clusters
	tunnels  Tunnels
	queue    *Queue
	clock    clock.PassiveClock
	limited  *prometheus.CounterVec
}

// Options of a Recorder.
type Options struct {
	Hosts *hoststore.Store
	// Sessions must add hosts to Queue.
	Sessions *session.Tracker
	Budget   *session.WriteBudget
	Clusters Clusters
	Tunnels  Tunnels
	Queue    *Queue
	Clock    clock.PassiveClock
	Metrics  prometheus.Registerer
}

// NewRecorder returns a Recorder whose metrics are registered.
func NewRecorder(o Options) (*Recorder, error) {
	r := &Recorder{
		hosts: o.Hosts, sessions: o.Sessions, budget: o.Budget, clusters: o.Clusters, tunnels: o.Tunnels, queue: o.Queue, clock: o.Clock,
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "agent_api", Name: "limited_writes_total",
			Help: "Writes of facts that had to wait for a write budget, by class of the host: Approved, Pending, Readopted.",
		}, []string{"class"}),
	}
	queued := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "elemental", Subsystem: "agent_api", Name: "queued_status_writes",
		Help: "Hosts whose status may have to be written without a request of theirs, now or next. Failed writes that wait to be repeated do not count.",
	}, func() float64 { return float64(o.Queue.Unfinished()) })
	for _, c := range []prometheus.Collector{r.limited, queued} {
		if err := o.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return r, nil
}

// Work writes the status of queued hosts until the queue is shut down. Several workers
// may run.
func (r *Recorder) Work(ctx context.Context) {
	for {
		key, stopped := r.queue.Get()
		if stopped {
			return
		}
		err := r.syncHost(ctx, key)
		switch {
		case err == nil || errors.Is(err, hoststore.ErrGone):
			r.queue.Forget(key)
		case ctx.Err() != nil:
		default:
			ctrl.LoggerFrom(ctx).Error(err, "Writing host status failed, retrying",
				"ElementalHost", klog.KRef(key.Namespace, key.Name))
			r.queue.AddRateLimited(key)
		}
		r.queue.Done(key)
	}
}

// syncHost writes the state of a host's connection and tunnel and its deferred progress and
// evidence that are due, in one request or, usually, none.
func (r *Recorder) syncHost(ctx context.Context, key types.NamespacedName) error {
	connected, disconnected := r.sessions.State(key)
	mayWrite, mayConnect := r.mayWrite(ctx, key)
	if !mayConnect {
		return nil
	}
	var progress infrav1.HostOperation
	var hasProgress bool
	if mayWrite {
		progress, hasProgress = r.sessions.DueProgress(key)
	}
	var evidence *infrav1.HostEndpoint
	var changed bool
	_, err := r.write(ctx, key, alwaysWrite, func(host *infrav1.ElementalHost) (err error) {
		if host.Status.Tunnel, err = r.tunnels.Status(ctx, host); err != nil {
			return err
		}
		switch {
		case connected:
			facts.SetConnection(host, infrav1.ConnectionConnected, r.clock.Now())
		case disconnected && host.Status.Connection != nil:
			facts.SetConnection(host, infrav1.ConnectionDisconnected, r.clock.Now())
		}
		if hasProgress {
			// Progress of an operation that has ended or was withdrawn is ignored.
			_ = facts.RecordOperation(host, progress, r.clock.Now())
		}
		if !mayWrite {
			return nil
		}
		// Read again at each attempt: a report may have replaced it.
		if evidence, changed = r.sessions.DueEvidence(key), false; evidence == nil {
			return nil
		}
		accepted, err := r.acceptedEndpoint(ctx, host, evidence)
		changed = err == nil && !equality.Semantic.DeepEqual(host.Status.Endpoint, accepted)
		if changed {
			host.Status.Endpoint = accepted
		}
		return err
	})
	if errors.Is(err, hoststore.ErrGone) {
		r.sessions.Forget(key)
	}
	if err != nil {
		return err
	}
	if hasProgress {
		r.sessions.ProgressWritten(key, progress)
	}
	if evidence != nil {
		r.sessions.EvidenceWritten(key, evidence, changed)
	}
	if connected || disconnected {
		r.sessions.Recorded(key, connected)
	}
	return nil
}
