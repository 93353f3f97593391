package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// infraClusterKind is what a Cluster of this provider refers to.
const infraClusterKind = "ElementalCluster"

// cluster is what the host's plan has to know of its cluster, from the cache. An
// endpoint that is a host's address takes one look-up by index.
func (s *Server) cluster(ctx context.Context, host *infrav1.ElementalHost) (plan.Cluster, error) {
	if !isNode(host) {
		return plan.Cluster{}, nil
	}
	claim := host.Spec.Claim
	infra, err := s.infraCluster(ctx, host)
	if err != nil || infra == nil {
		return plan.Cluster{}, err
	}
	known := plan.Cluster{Infra: infra}
	if claim.Role != infrav1.RoleInitialControlPlane || plan.EndpointType(infra) != infrav1.EndpointTypeVIP {
		return known, nil
	}
	if known.OtherControlPlane, err = s.otherControlPlane(ctx, host); err != nil || known.OtherControlPlane {
		return known, err
	}
	machine := &clusterv1.Machine{}
	err = s.client.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: claim.MachineName}, machine, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return plan.Cluster{}, fmt.Errorf("getting Machine: %w", err)
	}
	if err != nil {
		return plan.Cluster{}, nil //nolint:nilerr // it has not been restored yet
	}
	known.KubernetesVersion = machine.Spec.Version
	return known, nil
}

// isNode tells whether the host is a Node or about to be one.
func isNode(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return claim != nil && (claim.Phase == infrav1.ClaimBound || claim.Phase == infrav1.ClaimHeld)
}

// infraCluster returns the ElementalCluster of the host's cluster, not to be
// changed; a blank one for a cluster of another provider, nil if there is none.
func (s *Server) infraCluster(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.ElementalCluster, error) {
	name := host.Spec.Claim.ClusterName
	var found infrav1.ElementalClusterList
	err := s.client.List(ctx, &found, client.InNamespace(host.Namespace), client.MatchingFields{index.ClusterByName: name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("looking up ElementalCluster: %w", err)
	}
	if len(found.Items) > 0 {
		// Whoever copied an object has left its label on the copy, but core lets a
		// Cluster own one.
		return new(slices.MinFunc(found.Items, func(a, b infrav1.ElementalCluster) int {
			if x, y := ownedBy(&a, name), ownedBy(&b, name); x != y {
				if x {
					return -1
				}
				return 1
			}
			return strings.Compare(a.Name, b.Name)
		})), nil
	}
	cluster := &clusterv1.Cluster{}
	err = s.client.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: name}, cluster, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Cluster: %w", err)
	}
	if kind := cluster.Spec.InfrastructureRef.Kind; err == nil && kind != "" && kind != infraClusterKind {
		return &infrav1.ElementalCluster{}, nil
	}
	return nil, nil //nolint:nilnil // documented
}

func ownedBy(infra *infrav1.ElementalCluster, cluster string) bool {
	for _, ref := range infra.OwnerReferences {
		if ref.Kind == "Cluster" && ref.Name == cluster {
			return true
		}
	}
	return false
}

// otherControlPlane tells whether another host of the cluster can take a virtual
// address.
func (s *Server) otherControlPlane(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	hosts, err := s.hostsOf(ctx, host.Namespace, host.Spec.Claim.ClusterName)
	if err != nil {
		return false, err
	}
	for i := range hosts {
		if hosts[i].Name != host.Name && takesOver(&hosts[i]) {
			return true, nil
		}
	}
	return false, nil
}

// takesOver tells whether the host can take a virtual address. Whether its agent
// is connected does not count: each change of the answer restarts kube-vip on the
// initial host. Nor does it change when all that hosts have reported is lost.
func takesOver(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimBound || !claim.Role.IsControlPlane() || host.Spec.Fence != nil {
		return false
	}
	op := host.Operation(infrav1.OperationBootstrap, claim.ID)
	return op != nil && op.State == infrav1.OperationSucceeded || host.Status.Agent == nil
}

// hostsOf returns the hosts that are claimed for a cluster, not to be changed.
func (s *Server) hostsOf(ctx context.Context, namespace, cluster string) ([]infrav1.ElementalHost, error) {
	var hosts infrav1.ElementalHostList
	err := s.client.List(ctx, &hosts, client.InNamespace(namespace), client.MatchingFields{index.HostByCluster: cluster}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing hosts of Cluster %s: %w", cluster, err)
	}
	return hosts.Items, nil
}

// clusterEvent has the cluster's hosts look at their plans when its endpoint has
// changed, and no others. before is nil for one that came or went.
func (s *Server) clusterEvent(ctx context.Context, before, after any) {
	is, ok := unwrap(after).(*infrav1.ElementalCluster)
	if !ok {
		return
	}
	name := is.Labels[clusterv1.ClusterNameLabel]
	if was, ok := before.(*infrav1.ElementalCluster); ok {
		same := was.Spec.ControlPlaneEndpoint == is.Spec.ControlPlaneEndpoint &&
			equality.Semantic.DeepEqual(was.Spec.ControlPlaneEndpointPolicy, is.Spec.ControlPlaneEndpointPolicy)
		if formerly := was.Labels[clusterv1.ClusterNameLabel]; formerly != name {
			s.wakeCluster(ctx, is.Namespace, formerly)
		} else if same {
			return
		}
	}
	s.wakeCluster(ctx, is.Namespace, name)
}

// membersChanged has the initial control-plane host of a cluster look at its plan
// when there is another now that can take a virtual address, or none any more.
func (s *Server) membersChanged(ctx context.Context, was, is *infrav1.ElementalHost) {
	if a, b := takesOverIn(was), takesOverIn(is); a != b {
		initial := func(h *infrav1.ElementalHost) bool { return h.Spec.Claim.Role == infrav1.RoleInitialControlPlane }
		s.wakeCluster(ctx, is.Namespace, a, initial)
		s.wakeCluster(ctx, is.Namespace, b, initial)
	}
}

// takesOverIn names the cluster whose virtual address the host can take.
func takesOverIn(host *infrav1.ElementalHost) string {
	if takesOver(host) {
		return host.Spec.Claim.ClusterName
	}
	return ""
}

// wakeCluster wakes the polls of the cluster's hosts that are asked for.
func (s *Server) wakeCluster(ctx context.Context, namespace, cluster string, asked ...func(*infrav1.ElementalHost) bool) {
	if cluster == "" {
		return
	}
	hosts, err := s.hostsOf(ctx, namespace, cluster)
	if err != nil {
		// Each looks by itself when its poll ends.
		ctrl.LoggerFrom(ctx).Error(err, "Hosts could not be told at once of their cluster", "clusterName", cluster)
		return
	}
	for i := range hosts {
		if !slices.ContainsFunc(asked, func(wanted func(*infrav1.ElementalHost) bool) bool { return !wanted(&hosts[i]) }) {
			s.presence.wake(client.ObjectKeyFromObject(&hosts[i]))
		}
	}
}

// machineAdded has a Machine's host look at its plan: that of the initial control-plane
// host of a cluster with a virtual address takes the Machine's version, and objects are
// restored or moved in any order.
func (s *Server) machineAdded(ctx context.Context, object any) {
	machine, ok := object.(*clusterv1.Machine)
	if !ok {
		return
	}
	var hosts infrav1.ElementalHostList
	err := s.client.List(ctx, &hosts, client.InNamespace(machine.Namespace), client.MatchingFields{index.HostByMachine: machine.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Host could not be told at once of its Machine", "Machine", klog.KObj(machine))
		return
	}
	for i := range hosts.Items {
		s.presence.wake(client.ObjectKeyFromObject(&hosts.Items[i]))
	}
}
