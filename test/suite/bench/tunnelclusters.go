package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/conditions"
)

// gatherTunnels adds all hosts, and makes clusters of type Tunnel of three in ten. It returns the names of the clusters when
// all can be reached.
func (g *tunnelled) gatherTunnels(ctx context.Context) ([]string, error) {
	if err := g.gather(ctx, g.options.Hosts); err != nil {
		return nil, err
	}
	clusters := make([]string, max(g.options.Hosts/tunnelShare, 1))
	for i := range clusters {
		clusters[i] = fmt.Sprintf("gateway-%05d", i)
	}
	tunnels := len(clusters) * controlPlane
	g.progress.Say("Creating %s clusters of type Tunnel", table.Count(len(clusters)))
	if err := bare.Each(ctx, len(clusters), atOnce, func(ctx context.Context, i int) error {
		return g.createTunnelCluster(ctx, clusters[i])
	}); err != nil {
		return nil, err
	}
	n, err := g.awaitTunnels(ctx, tunnels, stepTimeout)
	if err == nil && n < tunnels {
		err = fmt.Errorf("only %d of %d tunnels are open after %s", n, tunnels, stepTimeout)
	}
	if err != nil {
		return nil, err
	}
	return clusters, g.until(ctx, "the condition TunnelReady", g.areTunnelsReady)
}

// createTunnelCluster creates a cluster of type Tunnel with its control-plane machines.
func (g *tunnelled) createTunnelCluster(ctx context.Context, name string) error {
	if err := g.machines.CreateClusterOf(ctx, name, func(infra *infrav1.ElementalCluster) {
		infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	}); err != nil {
		return err
	}
	for i := range controlPlane {
		if err := g.machines.CreateMachineOf(ctx, name, fmt.Sprintf("%s-%d", name, i), map[string]string{clusterv1.MachineControlPlaneLabel: ""}); err != nil {
			return err
		}
	}
	return g.machines.Release(ctx, name)
}

// tunnels returns the number of tunnels of the leader, or 0 while no manager answers.
func (g *tunnelled) tunnels(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	most := 0.0
	for _, m := range g.cluster.Managers() {
		if n, err := g.gauges.Read(ctx, m.Metrics, connectedTunnels); err == nil {
			most = max(most, n)
		}
	}
	return int(most)
}

// awaitTunnels waits until the leader has a number of tunnels. It returns their number, also at the limit.
func (g *tunnelled) awaitTunnels(ctx context.Context, want int, limit time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now, said := 0, time.Now()
	err := g.until(ctx, "tunnels", func(ctx context.Context) (bool, error) {
		now = g.tunnels(ctx)
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			g.progress.Say("%d of %d tunnels are open", now, want)
		}
		return now >= want, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return now, nil
	}
	return now, err
}

func (g *tunnelled) areTunnelsReady(ctx context.Context) (bool, error) {
	all, err := conditions.OfClusters(ctx, g.admin, namespace)
	if err != nil {
		return false, err
	}
	for _, of := range all {
		if !apimeta.IsStatusConditionTrue(of, infrav1.TunnelReadyCondition) {
			return false, nil
		}
	}
	return true, nil
}
