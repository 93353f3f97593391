package planinput

import (
	"context"
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
)

// Waker makes a host's open polls compute its plan again.
type Waker interface {
	Wake(host types.NamespacedName)
}

// Notifier wakes the polls of hosts whose plans depend on other objects, when those
// change. If it fails, the hosts see the change when their polls expire.
type Notifier struct {
	reader *Reader
	polls  Waker
}

// NewNotifier returns a Notifier.
func NewNotifier(r *Reader, polls Waker) *Notifier { return &Notifier{reader: r, polls: polls} }

// InfraClusterChanged wakes the cluster's hosts if its control plane endpoint or its owner
// changed. before is nil for an ElementalCluster that was created or deleted.
func (n *Notifier) InfraClusterChanged(ctx context.Context, before, after *infrav1.ElementalCluster) {
	name := after.Labels[clusterv1.ClusterNameLabel]
	if before != nil {
		same := before.Status.VirtualIP == after.Status.VirtualIP && before.Spec.ControlPlaneEndpoint == after.Spec.ControlPlaneEndpoint &&
			equality.Semantic.DeepEqual(before.Spec.ControlPlaneEndpointPolicy, after.Spec.ControlPlaneEndpointPolicy) &&
			equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
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
// take the virtual IP now, or no longer can.
func (n *Notifier) HostChanged(ctx context.Context, before, after *infrav1.ElementalHost) {
	if a, b := vipCluster(before), vipCluster(after); a != b {
		isInitial := func(h *infrav1.ElementalHost) bool { return h.Spec.Claim.Role == infrav1.RoleInitialControlPlane }
		n.wakeCluster(ctx, after.Namespace, a, isInitial)
		n.wakeCluster(ctx, after.Namespace, b, isInitial)
	}
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
			n.polls.Wake(client.ObjectKeyFromObject(&hosts[i]))
		}
	}
}

// MachineAdded wakes the Machine's host. The plan of the initial control-plane host of a
// cluster with a virtual IP depends on the Machine's version, and a restore or move may
// create the Machine after the host.
func (n *Notifier) MachineAdded(ctx context.Context, machine *clusterv1.Machine) {
	var hosts infrav1.ElementalHostList
	err := n.reader.client.List(ctx, &hosts, client.InNamespace(machine.Namespace), client.MatchingFields{index.HostByMachine: machine.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Waking the host of a new Machine failed; it gets a new plan when its poll expires", "Machine", klog.KObj(machine))
		return
	}
	for i := range hosts.Items {
		n.polls.Wake(client.ObjectKeyFromObject(&hosts.Items[i]))
	}
}
