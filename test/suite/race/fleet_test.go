package race

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// watchFrom returns options for a watch that starts at a resource version.
func watchFrom(version string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: version}
}

// report stands in for the agents: it reports the success of a claimed host's operation
// immediately.
func report(ctx context.Context, c client.Client, claimed <-chan *infrav1.ElementalHost) {
	for {
		var h *infrav1.ElementalHost
		select {
		case <-ctx.Done():
			return
		case h = <-claimed:
		}
		kind := infrav1.OperationBootstrap
		if h.Spec.Claim.Phase == infrav1.ClaimReleasing {
			kind = infrav1.OperationReset
		}
		if h.Operation(kind, h.Spec.Claim.ID) == nil {
			// A conflicting write triggers another event for the host.
			_ = write(ctx, c, h, func(status *infrav1.ElementalHostStatus) {
				controllertest.SetOperation(status, infrav1.HostOperation{Type: kind, ID: h.Spec.Claim.ID, State: infrav1.OperationSucceeded})
			})
		}
	}
}

// toggleConnections disconnects and reconnects random hosts until ctx ends.
func toggleConnections(ctx context.Context, c client.Client, namespace string) {
	flip := func(name string, state infrav1.ConnectionState) {
		h := &infrav1.ElementalHost{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, h); err != nil {
			return
		}
		_ = write(ctx, c, h, func(status *infrav1.ElementalHostStatus) {
			status.Connection = &infrav1.HostConnection{State: state, Since: metav1.Now()}
		})
	}
	for ctx.Err() == nil {
		name := fmt.Sprintf("host-%03d", rand.IntN(fleetSize()))
		flip(name, infrav1.ConnectionDisconnected)
		pause(ctx, 60*time.Millisecond)
		flip(name, infrav1.ConnectionConnected)
		pause(ctx, 60*time.Millisecond)
	}
}

// write updates a host's status as the agent API does. It does not retry conflicts, because the
// next report does.
func write(ctx context.Context, c client.Client, h *infrav1.ElementalHost, change func(*infrav1.ElementalHostStatus)) error {
	before := h.DeepCopy()
	change(&h.Status)
	hoststatus.Update(h, metav1.Now())
	if err := c.Status().Patch(ctx, h, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	return nil
}
