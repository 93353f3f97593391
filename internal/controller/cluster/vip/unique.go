package vip

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// findUser describes who else uses the address; blank if nobody does. claimed are the
// hosts of the cluster itself, which may have the address already.
func (r *Reconciler) findUser(ctx context.Context, s *scope.Scope, address string, claimed map[string]*infrav1.ElementalHost) (string, error) {
	clusters := &infrav1.ElementalClusterList{}
	if err := r.APIReader.List(ctx, clusters); err != nil {
		return "", fmt.Errorf("listing ElementalClusters: %w", err)
	}
	for i := range clusters.Items {
		other := &clusters.Items[i]
		if other.UID == s.InfraCluster.UID || !wants(other, address) {
			continue
		}
		// Status is written only for an object that belonged to a Cluster.
		if !sameAddress(other.Status.VirtualIP, address) {
			if belongs, err := r.belongsToCluster(ctx, other); err != nil {
				return "", err
			} else if !belongs {
				continue
			}
		}
		precedes, err := r.hasPrecedence(ctx, other, s.InfraCluster, address)
		if err != nil {
			return "", err
		}
		if precedes {
			return fmt.Sprintf("the endpoint of ElementalCluster %s/%s", other.Namespace, other.Name), nil
		}
	}
	hosts, err := r.Reader.Hosts(ctx, s.InfraCluster.Namespace)
	if err != nil {
		return "", err
	}
	for _, host := range hosts {
		if claimed[host.Name] != nil {
			continue
		}
		// Reports of hosts that are not approved don't count. Those of locked and fenced
		// hosts do: such a host may still have the address on the network, and a cluster
		// that starts with an endpoint that another host answers is hard to repair.
		if host.Spec.Approval != infrav1.ApprovalApproved {
			continue
		}
		for _, a := range host.Status.Addresses {
			if sameAddress(a.Address, address) {
				return "an address of ElementalHost " + host.Name, nil
			}
		}
	}
	return "", nil
}

// wants reports whether the address is or will be the cluster's endpoint.
func wants(c *infrav1.ElementalCluster, address string) bool {
	if sameAddress(c.Status.VirtualIP, address) {
		return true
	}
	if c.Spec.ControlPlaneEndpoint.Host != "" {
		return sameAddress(c.Spec.ControlPlaneEndpoint.Host, address)
	}
	vip := c.Spec.ControlPlaneEndpointPolicy.VIP
	return vip != nil && sameAddress(vip.Address, address)
}

// precedence of a cluster over others that want the same address.
type precedence int

const (
	wanting precedence = iota
	// running: the address is the endpoint in spec, and the cluster has control-plane
	// hosts. After a move or restore of the management cluster, which lose status, this
	// tells a cluster that has the address from one that only wants it. The type of the
	// endpoint does not matter: the address may be that of a host.
	running
	// having: status says that the cluster has the address. Users can't write it.
	having
)

// belongsToCluster reports whether a Cluster names the ElementalCluster as its
// infrastructure. It reads past the cache. The owner reference is not compared: after a
// restore it may have the UID of the former Cluster.
func (r *Reconciler) belongsToCluster(ctx context.Context, c *infrav1.ElementalCluster) (bool, error) {
	cluster, err := reconcile.Get(ctx, r.APIReader, c.Namespace, c.Labels[clusterv1.ClusterNameLabel], &clusterv1.Cluster{})
	if err != nil {
		return false, fmt.Errorf("getting Cluster of ElementalCluster %s: %w", client.ObjectKeyFromObject(c), err)
	}
	return cluster != nil && ownership.NamesInfraCluster(cluster, c), nil
}

// hasPrecedence reports whether a gets the address that both clusters want: the cluster
// that has it, else one that runs with it, else the older one. That an endpoint is given
// in spec counts for nothing: otherwise a new cluster could take an address from one that
// waits for hosts.
func (r *Reconciler) hasPrecedence(ctx context.Context, a, b *infrav1.ElementalCluster, address string) (bool, error) {
	x, err := r.precedenceOf(ctx, a, address)
	if err != nil {
		return false, err
	}
	y, err := r.precedenceOf(ctx, b, address)
	switch {
	case err != nil:
		return false, err
	case x != y:
		return x > y, nil
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.CreationTimestamp.Before(&b.CreationTimestamp), nil
	}
	return client.ObjectKeyFromObject(a).String() < client.ObjectKeyFromObject(b).String(), nil
}

func (r *Reconciler) precedenceOf(ctx context.Context, c *infrav1.ElementalCluster, address string) (precedence, error) {
	if sameAddress(c.Status.VirtualIP, address) {
		return having, nil
	}
	name := c.Labels[clusterv1.ClusterNameLabel]
	if name == "" || !sameAddress(c.Spec.ControlPlaneEndpoint.Host, address) {
		return wanting, nil
	}
	claimed, err := r.Reader.ClaimedHosts(ctx, c.Namespace, name)
	if err != nil {
		return wanting, err
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(claimed)), isControlPlane) {
		return running, nil
	}
	return wanting, nil
}

// sameAddress compares IP addresses regardless of their notation. Names are never the
// same.
func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
