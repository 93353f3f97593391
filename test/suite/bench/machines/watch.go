package machines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

// errWatchEnded is temporary: API servers end watches regularly.
var errWatchEnded = errors.New("the API server ended a watch")

// WatchProvisioned watches the ElementalMachines of a Cluster.
func (m *Client) WatchProvisioned(ctx context.Context, cluster string) (watch.Interface, error) {
	w, err := m.Admin.Watch(ctx, &infrav1.ElementalMachineList{}, client.InNamespace(m.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	if err != nil {
		return nil, fmt.Errorf("watching machines: %w", err)
	}
	return w, nil
}

// AwaitProvisioned waits until count machines are provisioned.
func (m *Client) AwaitProvisioned(ctx context.Context, w watch.Interface, count int) error {
	limit := time.NewTimer(stepTimeout)
	defer limit.Stop()
	said := time.Now()
	done := map[string]bool{}
	for len(done) < count {
		select {
		case e, ok := <-w.ResultChan():
			machine, isMachine := e.Object.(*infrav1.ElementalMachine)
			if !ok || !isMachine {
				return fmt.Errorf("waiting for machines: %w", errWatchEnded)
			}
			if provisioned(machine) {
				done[machine.Name] = true
			}
			if time.Since(said) > 10*time.Second {
				said = time.Now()
				m.Progress.Say("%s of %s machines are provisioned", table.Count(len(done)), table.Count(count))
			}
		case <-limit.C:
			return fmt.Errorf("only %d of %d machines are provisioned after %s", len(done), count, stepTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.Cluster.Done():
			return m.Cluster.Err()
		}
	}
	return nil
}

// provisioned reports whether a machine is provisioned.
func provisioned(m *infrav1.ElementalMachine) bool {
	return ptr.Deref(m.Status.Initialization.Provisioned, false)
}
