package etcdrestore

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
)

// reportTimeout is how long a host that is connected may take to say that it has begun. Agents
// report progress every 10 seconds.
const reportTimeout = 2 * time.Minute

// withdraw takes the request back from the host. It reports whether the host neither restores etcd nor
// begins, as far as is known, and the result if the restore has ended. The request stays on the host
// until then: the manager refuses reports of an operation that was not requested.
func (r *Reconciler) withdraw(ctx context.Context, s *scope) (result infrav1.EtcdRestoreResult, over bool, err error) {
	request := s.restore.Spec.Request
	if request.Result != "" || s.host == nil || !isRequested(s) {
		return request.Result, true, nil
	}
	op := s.host.Operation(infrav1.OperationEtcdRestore, request.ID)
	if result, _ := resultOf(op); result != "" {
		return result, true, nil
	}
	if op == nil && s.host.Spec.EtcdRestore.WithdrawnAt.IsZero() {
		now := metav1.NewTime(r.Clock.Now())
		if err := r.patchHost(ctx, s.host, "withdrawing the restore from", func(h *infrav1.ElementalHost) { h.Spec.EtcdRestore.WithdrawnAt = now }); err != nil {
			return "", false, err
		}
	}
	if mayRun(s, op, r.Clock.Now(), r.DisconnectGrace+reportTimeout) {
		s.condition = progress(s, op)
		s.condition.Message += "; the deletion waits for that"
		return "", false, nil
	}
	return "", true, r.patchHost(ctx, s.host, "ending the restore on", func(h *infrav1.ElementalHost) { h.Spec.EtcdRestore = nil })
}

// mayRun reports whether the host may restore etcd, without having reported the end, after the request
// was withdrawn. A host that still counts as connected after the grace has got the plan without the
// request, and would have reported that it has begun. If it is away, the restore may have begun.
// Without other control planes that does no harm.
func mayRun(s *scope, op *infrav1.HostOperation, now time.Time, timeout time.Duration) bool {
	switch {
	case op != nil:
		return true
	case !s.host.IsConnected():
		return len(s.restore.Spec.Request.Others) > 0 && !etcdrestore.IsOff(s.host)
	}
	since := s.host.Spec.EtcdRestore.WithdrawnAt.Time
	if connected := s.host.Status.Connection.Since.Time; connected.After(since) {
		since = connected
	}
	s.recheck = max(timeout-now.Sub(since), 0)
	return s.recheck > 0
}
