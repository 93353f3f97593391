package router

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// clusterOf returns the Cluster whose endpoint has the name. Anybody who may create an
// ElementalCluster can write any name into it, so the name must be the cluster's own, and
// the Cluster must name the ElementalCluster.
func (r *Router) clusterOf(ctx context.Context, name string) (types.NamespacedName, error) {
	list := &infrav1.ElementalClusterList{}
	if err := r.options.Cache.List(ctx, list, client.MatchingFields{index.ClusterByTunnelName: name}, client.UnsafeDisableDeepCopy); err != nil {
		return types.NamespacedName{}, fmt.Errorf("listing clusters by endpoint: %w", err)
	}
	var found []types.NamespacedName
	for i := range list.Items {
		infra := &list.Items[i]
		key := types.NamespacedName{Namespace: infra.Namespace, Name: infra.Labels[clusterv1.ClusterNameLabel]}
		if r.options.Names.Of(key.Namespace, key.Name) != name {
			continue
		}
		cluster := &clusterv1.Cluster{}
		err := r.options.Cache.Get(ctx, key, cluster, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return types.NamespacedName{}, fmt.Errorf("getting Cluster %s: %w", key, err)
		}
		if ownership.IsInfraCluster(infra, cluster) {
			found = append(found, key)
		}
	}
	// A long name of a Cluster is replaced by a hash. Two clusters share a hash only if a user
	// has searched for it, so neither is served.
	if len(found) != 1 {
		return types.NamespacedName{}, ErrNoRoute
	}
	return found[0], nil
}

// confirm returns ErrNoRoute if connections are no longer routed to the cluster like this.
func (r *Router) confirm(ctx context.Context, by route) error {
	if by.serverName == "" {
		return r.hasTunnels(ctx, by.cluster)
	}
	current, err := r.clusterOf(ctx, by.serverName)
	if err == nil && current != by.cluster {
		err = ErrNoRoute
	}
	return err
}

// hasTunnels returns ErrNoRoute if there is no such Cluster whose hosts have tunnels.
func (r *Router) hasTunnels(ctx context.Context, key types.NamespacedName) error {
	cluster, infra := &clusterv1.Cluster{}, &infrav1.ElementalCluster{}
	if err := r.options.Cache.Get(ctx, key, cluster, client.UnsafeDisableDeepCopy); err != nil {
		return noRoute("Cluster", key, err)
	}
	ref := types.NamespacedName{Namespace: key.Namespace, Name: cluster.Spec.InfrastructureRef.Name}
	if ref.Name == "" {
		return ErrNoRoute
	}
	if err := r.options.Cache.Get(ctx, ref, infra, client.UnsafeDisableDeepCopy); err != nil {
		return noRoute("ElementalCluster", ref, err)
	}
	if !ownership.IsInfraCluster(infra, cluster) || !infra.HasTunnels() {
		return ErrNoRoute
	}
	return nil
}

func noRoute(kind string, key types.NamespacedName, err error) error {
	if apierrors.IsNotFound(err) {
		return ErrNoRoute
	}
	return fmt.Errorf("getting %s %s: %w", kind, key, err)
}

// candidates returns the hosts that may carry connections to the cluster, in order.
func (r *Router) candidates(ctx context.Context, cluster types.NamespacedName) ([]candidate, error) {
	hosts := &infrav1.ElementalHostList{}
	err := r.options.Cache.List(ctx, hosts, client.InNamespace(cluster.Namespace),
		client.MatchingFields{index.HostByCluster: cluster.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing hosts of cluster %s: %w", cluster, err)
	}
	last := r.open.last(cluster)
	var all []candidate
	for i := range hosts.Items {
		host := &hosts.Items[i]
		is, ok := kindOf(host)
		if !ok {
			continue
		}
		if ok, err := r.hasMachine(ctx, host); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		key := client.ObjectKeyFromObject(host)
		all = append(all, candidate{host: key, claim: host.Spec.Claim.ID, kind: is, servedLast: key == last, streams: r.options.Tunnels.Streams(key)})
	}
	return sorted(all), nil
}

// kindOf returns what the host is for connections to its cluster, and false if it may carry
// none. Whether a control-plane host has a tunnel shows when it is dialed, before its status
// says so.
func kindOf(host *infrav1.ElementalHost) (kind, bool) {
	switch {
	case !tunnelhost.MayCarry(host):
		return 0, false
	case !host.Spec.Claim.Role.IsControlPlane():
		return fallback, host.HasTunnel()
	case tunnelhost.IsReady(host):
		return ready, true
	default:
		return unready, true
	}
}

// hasMachine reports whether the host's Machine exists and is not being deleted. The control
// plane removes the etcd member of such a Machine first, and its API server stops with it.
func (r *Router) hasMachine(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	machine := &clusterv1.Machine{}
	key := types.NamespacedName{Namespace: host.Namespace, Name: host.Spec.Claim.MachineName}
	err := r.options.Cache.Get(ctx, key, machine, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting Machine %s: %w", key, err)
	}
	return machine.DeletionTimestamp.IsZero(), nil
}
