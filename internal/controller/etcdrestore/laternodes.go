package etcdrestore

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

const (
	// rebootTimeout is how long the Cluster stays paused for hosts that reboot.
	rebootTimeout = 15 * time.Minute
	// registerTimeout is how long a kubelet has after the reboot to register its Node. A
	// MachineHealthCheck would have a Machine replaced at once whose Node is not there.
	registerTimeout = time.Minute
)

// rebootLaterNodes has the hosts rebooted that became Nodes after the snapshot, and reports whether the
// Cluster can go on. It does not wait for hosts that are away, nor for those that can't reboot.
func (r *Reconciler) rebootLaterNodes(ctx context.Context, s *scope) (done bool, err error) {
	request := s.restore.Spec.Request
	if len(request.LaterNodes) == 0 {
		return true, nil
	}
	if request.ServedAt.IsZero() {
		now := metav1.NewTime(r.Clock.Now())
		if err := r.patchRestore(ctx, s, "recording when etcd served", func(restore *infrav1.ElementalEtcdRestore) { restore.Spec.Request.ServedAt = now }); err != nil {
			return false, err
		}
	}
	rest := rebootTimeout - r.Clock.Since(s.restore.Spec.Request.ServedAt.Time)
	var waiting []string
	for _, host := range recorded(s, s.restore.Spec.Request.LaterNodes) {
		want := &infrav1.HostReboot{ID: s.restore.Spec.Request.ID, RestoreName: s.restore.Name}
		if is := host.Spec.Reboot; is == nil || is.ID != want.ID {
			if err := r.patchHost(ctx, host, "requesting a reboot of", func(h *infrav1.ElementalHost) { h.Spec.Reboot = want }); err != nil {
				return false, err
			}
		}
		left := min(rest, r.untilRegistered(host, want.ID))
		if left <= 0 {
			continue
		}
		waiting = append(waiting, host.Name)
		if s.recheck == 0 || left < s.recheck {
			s.recheck = left
		}
	}
	if len(waiting) > 0 {
		s.condition = no(infrav1.RestoringReason, "etcd is restored; waiting until these hosts have rebooted and are Nodes again: %s", failover.JoinFirst(waiting, ", "))
	}
	return len(waiting) == 0, nil
}

// untilRegistered returns for how long the host may take at most until its Node is registered again, by
// what the host says.
func (r *Reconciler) untilRegistered(host *infrav1.ElementalHost, id string) time.Duration {
	op := host.Operation(infrav1.OperationReboot, id)
	switch {
	case op == nil && (!host.IsConnected() || host.Spec.Fence != nil || annotations.HasPaused(host)):
		return 0
	case op == nil || op.State == infrav1.OperationRunning:
		return rebootTimeout
	case op.State == infrav1.OperationSucceeded:
		return registerTimeout - r.Clock.Since(op.FinishedAt.Time)
	default:
		return 0
	}
}
