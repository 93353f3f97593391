package planinput

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/pause"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch

// Paused reports whether the host is paused, see pause.Host.
func (r *Reader) Paused(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	return pause.Host(ctx, r.client, host)
}

// MachineChanged wakes the host of an ElementalMachine that was paused or resumed. before
// is nil for a new ElementalMachine.
func (n *Notifier) MachineChanged(ctx context.Context, before, after *infrav1.ElementalMachine) {
	was := before != nil && annotations.HasPaused(before)
	if ref := after.Spec.HostRef; ref != nil && was != annotations.HasPaused(after) {
		n.polls.Wake(ctx, types.NamespacedName{Namespace: after.Namespace, Name: ref.Name})
	}
}
