package planinput

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// tunnelPart is what the plans of a cluster of type Tunnel depend on of one of its hosts.
type tunnelPart struct {
	cluster string
	// backend is in the plans of all other hosts.
	backend string
	// carrier and isStandby decide which workers have tunnels.
	carrier   carrier
	isStandby bool
}

// tunnelPartOf returns the zero value for a host that no Machine has claimed.
func tunnelPartOf(host *infrav1.ElementalHost) tunnelPart {
	if host.Spec.Claim == nil {
		return tunnelPart{}
	}
	return tunnelPart{
		cluster: host.Spec.Claim.ClusterName, backend: backend(host), carrier: carrierOf(host), isStandby: isStandby(host),
	}
}

// tunnelPartChanged wakes hosts of a cluster of type Tunnel whose plans depend on what has
// changed of one of its hosts.
func (n *Notifier) tunnelPartChanged(ctx context.Context, before, after *infrav1.ElementalHost) {
	was, is := tunnelPartOf(before), tunnelPartOf(after)
	if was == is {
		return
	}
	clusters := slices.Compact([]string{was.cluster, is.cluster})
	for _, cluster := range clusters {
		if was.backend != is.backend || len(clusters) > 1 && is.backend != "" {
			n.wakeTunnelCluster(ctx, after.Namespace, cluster)
		}
		if was.carrier != is.carrier || was.isStandby != is.isStandby || len(clusters) > 1 {
			n.wakeStandbys(ctx, after.Namespace, cluster)
		}
	}
}

// HostAdded is called for each host that exists when the process starts. A cluster whose
// control plane has lost its tunnels just now may need the tunnels of workers soon.
func (n *Notifier) HostAdded(ctx context.Context, host *infrav1.ElementalHost) {
	if c := carrierOf(host); c.state == infrav1.ConnectionDisconnected {
		n.wakeStandbysAt(ctx, c.since.Add(fallbackAfter), host.Namespace, host.Spec.Claim.ClusterName)
	}
	n.leavingAdded(ctx, host)
}

// leavingAdded does the same for a claimed host whose Machine is being deleted. It is called
// for hosts and for Machines, as their caches fill in any order.
func (n *Notifier) leavingAdded(ctx context.Context, host *infrav1.ElementalHost) {
	if !carrierOf(host).isControlPlane {
		return
	}
	leaving, err := n.reader.leavingSince(ctx, host)
	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "Reading the Machine of a host failed; workers get new plans when their polls expire", "ElementalHost", klog.KObj(host))
	case !leaving.IsZero():
		n.wakeStandbysAt(ctx, leaving.Add(fallbackAfter), host.Namespace, host.Spec.Claim.ClusterName)
	}
}

// wakeTunnelCluster wakes all hosts of the cluster if it is of type Tunnel.
func (n *Notifier) wakeTunnelCluster(ctx context.Context, namespace, cluster string) {
	if n.isTunnelCluster(ctx, namespace, cluster) {
		n.wakeCluster(ctx, namespace, cluster)
	}
}

// wakeStandbys wakes the workers of a cluster of type Tunnel that carry it, or have to carry
// it now, or no longer. If workers have to carry it later, it is called again then.
func (n *Notifier) wakeStandbys(ctx context.Context, namespace, cluster string) {
	if !n.isTunnelCluster(ctx, namespace, cluster) {
		return
	}
	if err := n.wakeStandbysOf(ctx, namespace, cluster); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waking workers after a change of a tunnel failed; they get new plans when their polls expire", "clusterName", cluster)
	}
}

func (n *Notifier) wakeStandbysOf(ctx context.Context, namespace, cluster string) error {
	hosts, err := n.reader.hostsOfCluster(ctx, namespace, cluster)
	if err != nil {
		return err
	}
	from, needed, err := n.reader.fallbackFrom(ctx, hosts)
	if err != nil {
		return err
	}
	if needed {
		n.wakeStandbysAt(ctx, from, namespace, cluster)
	}
	// One more than needed: a worker that has become able to carry displaces another.
	able, err := n.reader.standbys(ctx, hosts, fallbackWorkers+1)
	if err != nil {
		return err
	}
	for i := range hosts {
		host := &hosts[i]
		if slices.Contains(able, host.Name) || host.Status.Tunnel != nil && !host.Spec.Claim.Role.IsControlPlane() {
			n.polls.Wake(ctx, client.ObjectKeyFromObject(host))
		}
	}
	return nil
}

// wakeStandbysAt calls wakeStandbys later, unless the time has passed.
func (n *Notifier) wakeStandbysAt(ctx context.Context, at time.Time, namespace, cluster string) {
	if at.After(n.reader.clock.Now()) {
		n.timers.At(at, func() { n.wakeStandbys(ctx, namespace, cluster) })
	}
}

// isTunnelCluster reports whether the cluster is of type Tunnel.
func (n *Notifier) isTunnelCluster(ctx context.Context, namespace, cluster string) bool {
	if cluster == "" {
		return false
	}
	infra, err := n.reader.infraCluster(ctx, namespace, cluster)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waking hosts of a cluster failed; they get new plans when their polls expire", "clusterName", cluster)
	}
	return isTunnel(infra)
}

// MachineUpdated wakes the hosts of a cluster of type Tunnel whose plans have the API server
// of a Machine that is being deleted now, and the workers that have to carry the cluster
// instead of its host.
func (n *Notifier) MachineUpdated(ctx context.Context, before, after *clusterv1.Machine) {
	if before.DeletionTimestamp.IsZero() == after.DeletionTimestamp.IsZero() {
		return
	}
	hosts, err := n.hostsOfMachine(ctx, after)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waking hosts after the deletion of a Machine failed; they get new plans when their polls expire", "Machine", klog.KObj(after))
		return
	}
	for i := range hosts {
		cluster := hosts[i].Spec.Claim.ClusterName
		if backend(&hosts[i]) != "" {
			n.wakeTunnelCluster(ctx, after.Namespace, cluster)
		}
		n.wakeStandbys(ctx, after.Namespace, cluster)
	}
}
