package planinput

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/pause"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// Waker makes a host's open polls compute its plan again.
type Waker interface {
	Wake(ctx context.Context, host types.NamespacedName)
}

// Notifier wakes the polls of hosts whose plans depend on other objects, when those
// change. If it fails, the hosts see the change when their polls expire.
type Notifier struct {
	reader *Reader
	polls  Waker
	timers *timer.Queue
}

// NewNotifier returns a Notifier.
func NewNotifier(r *Reader, polls Waker, timers *timer.Queue) *Notifier {
	return &Notifier{reader: r, polls: polls, timers: timers}
}

// InfraClusterChanged wakes the cluster's hosts if its control plane endpoint, its owner or
// whether its hosts have tunnels changed. before is nil for an ElementalCluster that was created or deleted.
func (n *Notifier) InfraClusterChanged(ctx context.Context, before, after *infrav1.ElementalCluster) {
	name := after.Labels[clusterv1.ClusterNameLabel]
	if before != nil {
		n.snapshotRequested(ctx, name, before, after)
		same := before.Status.VirtualIP == after.Status.VirtualIP && before.Spec.ControlPlaneEndpoint == after.Spec.ControlPlaneEndpoint &&
			equality.Semantic.DeepEqual(before.Spec.ControlPlaneEndpointPolicy, after.Spec.ControlPlaneEndpointPolicy) &&
			equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) && before.HasTunnels() == after.HasTunnels()
		if former := before.Labels[clusterv1.ClusterNameLabel]; former != name {
			n.wakeCluster(ctx, after.Namespace, former)
		} else if same {
			return
		}
	}
	n.wakeCluster(ctx, after.Namespace, name)
}

// ClusterChanged wakes the Cluster's hosts if it refers to another infrastructure now, or
// was paused or resumed. before is nil for a new Cluster.
func (n *Notifier) ClusterChanged(ctx context.Context, before, after *clusterv1.Cluster) {
	if before == nil || before.UID != after.UID || before.Spec.InfrastructureRef != after.Spec.InfrastructureRef ||
		pause.Cluster(before) != pause.Cluster(after) {
		n.wakeCluster(ctx, after.Namespace, after.Name)
	}
}

// ClusterDeleted wakes the Cluster's hosts except those that are being released. At the end
// of `clusterctl move` the source deletes the Cluster before its hosts, and a host that waits
// for its reset must not begin it in between.
func (n *Notifier) ClusterDeleted(ctx context.Context, cluster *clusterv1.Cluster) {
	n.wakeCluster(ctx, cluster.Namespace, cluster.Name, (*infrav1.ElementalHost).IsBoundOrHeld)
}

// HostChanged wakes the initial control-plane host of a cluster if another of its hosts can
// take the virtual IP now, or no longer can, and the hosts of a cluster of type Tunnel whose
// plans depend on what has changed.
func (n *Notifier) HostChanged(ctx context.Context, before, after *infrav1.ElementalHost) {
	if a, b := vipCluster(before), vipCluster(after); a != b {
		isInitial := func(h *infrav1.ElementalHost) bool { return h.Spec.Claim.Role == infrav1.RoleInitialControlPlane }
		n.wakeCluster(ctx, after.Namespace, a, isInitial)
		n.wakeCluster(ctx, after.Namespace, b, isInitial)
	}
	n.tunnelPartChanged(ctx, before, after)
}

// vipCluster returns the name of the cluster whose virtual IP the host can take.
func vipCluster(host *infrav1.ElementalHost) string {
	if canTakeVIP(host) {
		return host.Spec.Claim.ClusterName
	}
	return ""
}

// wakeCluster wakes the polls of the cluster's hosts that match all functions.
func (n *Notifier) wakeCluster(ctx context.Context, namespace, cluster string, match ...func(*infrav1.ElementalHost) bool) {
	if cluster == "" {
		return
	}
	hosts, err := n.reader.hostsOfCluster(ctx, namespace, cluster)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waking hosts after a change of their cluster failed; they get new plans when their polls expire", "clusterName", cluster)
		return
	}
	for i := range hosts {
		if !slices.ContainsFunc(match, func(f func(*infrav1.ElementalHost) bool) bool { return !f(&hosts[i]) }) {
			n.polls.Wake(ctx, client.ObjectKeyFromObject(&hosts[i]))
		}
	}
}

// MachineAdded wakes the Machine's host. The plan of the initial control-plane host of a
// cluster with a virtual IP depends on the Machine's version, and a restore or move may
// create the Machine after the host.
func (n *Notifier) MachineAdded(ctx context.Context, machine *clusterv1.Machine) {
	hosts, err := n.hostsOfMachine(ctx, machine)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waking the host of a new Machine failed; it gets a new plan when its poll expires", "Machine", klog.KObj(machine))
		return
	}
	for i := range hosts {
		n.polls.Wake(ctx, client.ObjectKeyFromObject(&hosts[i]))
		n.leavingAdded(ctx, &hosts[i])
	}
}

// hostsOfMachine returns the hosts that are claimed for a Machine. They must not be changed.
func (n *Notifier) hostsOfMachine(ctx context.Context, machine *clusterv1.Machine) ([]infrav1.ElementalHost, error) {
	var hosts infrav1.ElementalHostList
	err := n.reader.client.List(ctx, &hosts, client.InNamespace(machine.Namespace), client.MatchingFields{index.HostByMachine: machine.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing hosts of Machine %s: %w", machine.Name, err)
	}
	return hosts.Items, nil
}
