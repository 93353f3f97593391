package planinput

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch

// Cluster returns what a host's plan needs of its cluster. It is empty for a host that
// is not claimed. If the control plane endpoint is a host's address, it takes two look-ups
// besides those of Paused. If it is of type Tunnel, if the host is upgraded in place and has
// the endpoint, or if etcd is restored on the host, it lists the cluster's hosts.
func (r *Reader) Cluster(ctx context.Context, host *infrav1.ElementalHost) (plan.Cluster, error) {
	paused, err := r.Paused(ctx, host)
	if err != nil {
		return plan.Cluster{}, err
	}
	unknown := plan.Cluster{Paused: paused}
	if !host.IsBoundOrHeld() {
		return unknown, nil
	}
	claim := host.Spec.Claim
	infra, err := r.InfraCluster(ctx, host)
	if err != nil || infra == nil {
		return unknown, err
	}
	known := plan.Cluster{Infra: infra, Images: r.images, Paused: paused}
	if known.ProviderIDs, err = r.providerIDs(ctx, host); err != nil {
		return unknown, err
	}
	if isTunnel(infra) {
		return r.withTunnels(ctx, host, known)
	}
	if claim.Role != infrav1.RoleInitialControlPlane || infra.EndpointType() != infrav1.EndpointTypeVIP {
		return r.withPeers(ctx, host, known)
	}
	if known.OtherControlPlane, err = r.otherControlPlane(ctx, host); err != nil || known.OtherControlPlane {
		return known, err
	}
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, host.Namespace, claim.MachineName, machine)
	if err != nil || !found {
		return unknown, err // a Machine that does not exist is not restored from the backup yet
	}
	known.KubernetesVersion = machine.Spec.Version
	return known, nil
}

// InfraCluster returns the ElementalCluster of a claimed host's cluster, which must not be
// changed. It is empty for a cluster of another provider, and nil if the cluster is
// unknown. Cluster and ElementalCluster must refer to each other: an ElementalCluster that
// merely claims to belong to a Cluster would otherwise decide what its hosts run.
func (r *Reader) InfraCluster(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.ElementalCluster, error) {
	return r.infraCluster(ctx, host.Namespace, host.Spec.Claim.ClusterName)
}

// infraCluster is InfraCluster for the name of a Cluster.
func (r *Reader) infraCluster(ctx context.Context, namespace, name string) (*infrav1.ElementalCluster, error) {
	cluster := &clusterv1.Cluster{}
	found, err := r.get(ctx, namespace, name, cluster)
	if err != nil || !found {
		return nil, err
	}
	ref := cluster.Spec.InfrastructureRef
	switch {
	case !ref.IsDefined():
		return nil, nil
	case ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != ownership.InfraClusterKind:
		return &infrav1.ElementalCluster{}, nil
	}
	infra := &infrav1.ElementalCluster{}
	found, err = r.get(ctx, namespace, ref.Name, infra)
	if err != nil || !found || !ownership.IsInfraCluster(infra, cluster) {
		return nil, err
	}
	return infra, nil
}

// EndpointExplainsFailure reports whether a bootstrap of the claimed host may have failed
// because of its cluster's control plane endpoint: the endpoint does not answer, or it has
// moved since the host's Machine was created, so that the bootstrap data may name the
// former one.
func (r *Reader) EndpointExplainsFailure(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	infra, err := r.InfraCluster(ctx, host)
	if err != nil || infra == nil {
		return false, err
	}
	if s := infra.Status.Endpoint; s != nil && !s.UnreachableSince.IsZero() {
		return true, nil
	}
	moved := infra.EndpointMovedAt()
	if moved.IsZero() {
		return false, nil
	}
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, host.Namespace, host.Spec.Claim.MachineName, machine)
	return found && machine.CreationTimestamp.Before(&moved), err
}

// get reads an object, which must not be changed, and reports whether it exists.
func (r *Reader) get(ctx context.Context, namespace, name string, object client.Object) (found bool, err error) {
	err = r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting %T %s: %w", object, name, err)
	}
	return err == nil, nil
}

// otherControlPlane reports whether another host of the cluster can take the virtual IP.
func (r *Reader) otherControlPlane(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	hosts, err := r.hostsOfCluster(ctx, host.Namespace, host.Spec.Claim.ClusterName)
	if err != nil {
		return false, err
	}
	for i := range hosts {
		if hosts[i].Name != host.Name && canTakeVIP(&hosts[i]) {
			return true, nil
		}
	}
	return false, nil
}

// canTakeVIP reports whether the host can take its cluster's virtual IP. It does not depend
// on the agent's connection, because each change of the answer restarts kube-vip on the
// initial host. A host without any reported status, as after a restore, counts as
// bootstrapped for the same reason.
func canTakeVIP(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimBound || !claim.Role.IsControlPlane() || host.Spec.Fence != nil {
		return false
	}
	op := host.Operation(infrav1.OperationBootstrap, claim.ID)
	return op != nil && op.State == infrav1.OperationSucceeded || host.Status.Agent == nil
}

// hostsOfCluster returns the hosts that are claimed for a cluster. They must not be
// changed.
func (r *Reader) hostsOfCluster(ctx context.Context, namespace, cluster string) ([]infrav1.ElementalHost, error) {
	var hosts infrav1.ElementalHostList
	err := r.client.List(ctx, &hosts, client.InNamespace(namespace), client.MatchingFields{index.HostByCluster: cluster}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing hosts of Cluster %s: %w", cluster, err)
	}
	return hosts.Items, nil
}
