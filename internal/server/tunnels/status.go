package tunnels

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
)

// absence is how long a host may be without the tunnel that its plan asks for before its
// status says so.
const absence = 20 * time.Second

// StateChanged sees to it that status.tunnel of the host is written when it is due.
func (r *Reviewer) StateChanged(host types.NamespacedName) {
	switch state, known := r.table.State(host); {
	case !known:
	case state.Connected:
		r.enqueue(host)
	default:
		r.timers.At(state.Since.Add(absence), func() { r.enqueue(host) })
	}
}

// Status returns what status.tunnel of the host has to be. It differs from what it is only
// if the state has changed.
func (r *Reviewer) Status(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.HostTunnel, error) {
	recorded := host.Status.Tunnel
	state, known := r.table.State(client.ObjectKeyFromObject(host))
	if !known && recorded == nil {
		return nil, nil
	}
	wanted, err := r.plans.WantsTunnel(ctx, host)
	if err != nil || !wanted {
		return nil, err
	}
	now := infrav1.ConnectionDisconnected
	switch {
	case !known:
		return recorded, nil // Review is about to expect it
	case state.Connected:
		now = infrav1.ConnectionConnected
	case r.clock.Now().Before(r.disconnectedAt(state, recorded)):
		return recorded, nil
	}
	if recorded != nil && recorded.State == now {
		return recorded, nil
	}
	out := &infrav1.HostTunnel{State: now, Since: metav1.NewTime(state.Since.Truncate(time.Second))}
	switch {
	case state.Connected:
	case state.Ended == nil:
		out.Message = "The host has opened no tunnel"
	default:
		out.Message = facts.Text("The tunnel ended: " + state.Ended.Error())
	}
	return out, nil
}

// disconnectedAt returns when a host without a tunnel counts as disconnected. A host that
// had a tunnel with another process gets the grace period of the start.
func (r *Reviewer) disconnectedAt(state State, recorded *infrav1.HostTunnel) time.Time {
	at := state.Since.Add(absence)
	isOfAnother := state.Ended == nil && recorded != nil && recorded.State == infrav1.ConnectionConnected
	if graceEnd := r.started.Add(r.grace); isOfAnother && graceEnd.After(at) {
		return graceEnd
	}
	return at
}
