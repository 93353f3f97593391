package server

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// work writes what hosts don't wait for: changes of their connection, and
// progress and evidence whose time has come.
func (s *Server) work(ctx context.Context) {
	for {
		key, stopped := s.queue.Get()
		if stopped {
			return
		}
		err := s.syncHost(ctx, key)
		switch {
		case err == nil || errors.Is(err, errGone):
			s.queue.Forget(key)
		case ctx.Err() != nil:
		default:
			ctrl.LoggerFrom(ctx).Error(err, "Connection could not be recorded, trying again",
				"ElementalHost", klog.KRef(key.Namespace, key.Name))
			s.queue.AddRateLimited(key)
		}
		s.queue.Done(key)
	}
}

// syncHost makes a host's status say whether the host is connected. It writes
// once or, mostly, not at all.
func (s *Server) syncHost(ctx context.Context, key types.NamespacedName) error {
	connected, absent := s.presence.state(key)
	due, hasProgress := s.presence.dueProgress(key)
	if !connected && !absent && !hasProgress && s.presence.dueEvidence(key) == nil {
		return nil
	}
	var news *infrav1.HostEndpoint
	var changed bool
	_, err := s.hosts.update(ctx, key, func(host *infrav1.ElementalHost) error {
		switch {
		case connected:
			s.setConnection(host, infrav1.ConnectionConnected)
		case absent && host.Status.Connection != nil:
			s.setConnection(host, infrav1.ConnectionDisconnected)
		}
		if hasProgress {
			// Progress of an operation that is over, or no longer the host's, is no
			// news.
			_ = record(host, due, s.clock.Now())
		}
		// Each time anew: a report may have brought something newer.
		if news, changed = s.presence.dueEvidence(key), false; news == nil {
			return nil
		}
		is, err := s.believed(ctx, host, news)
		changed = err == nil && !equality.Semantic.DeepEqual(host.Status.Endpoint, is)
		if changed {
			host.Status.Endpoint = is
		}
		return err
	})
	if errors.Is(err, errGone) {
		s.presence.forget(key)
	}
	if err != nil {
		return err
	}
	if hasProgress {
		s.presence.progressWritten(key, due)
	}
	if news != nil {
		s.presence.evidenceWritten(key, news, changed)
	}
	if connected || absent {
		s.presence.written(key, connected)
	}
	return nil
}

func (s *Server) setConnection(host *infrav1.ElementalHost, state infrav1.ConnectionState) {
	if is := host.Status.Connection; is == nil || is.State != state {
		host.Status.Connection = &infrav1.HostConnection{State: state, Since: metav1.NewTime(s.clock.Now().Truncate(time.Second))}
	}
}
