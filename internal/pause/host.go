package pause

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// Host reports whether the host, its Cluster or its ElementalMachine is paused. The client
// reads from a cache that has the indexes of package index.
//
// A missing Cluster pauses a bound host: a move or restore may create the Cluster later.
// It does not pause a host that is being released or fenced. Such a host may return long
// after its Cluster was deleted, and must be reset then.
func Host(ctx context.Context, c client.Reader, host *infrav1.ElementalHost) (bool, error) {
	claim := host.Spec.Claim
	if plan.Paused(host) || claim == nil {
		return plan.Paused(host), nil
	}
	cluster := &clusterv1.Cluster{}
	err := c.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: claim.ClusterName}, cluster, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("getting Cluster %s: %w", claim.ClusterName, err)
	case err != nil && claim.Phase == infrav1.ClaimBound && host.Spec.Fence == nil:
		return true, nil
	case err == nil && Cluster(cluster):
		return true, nil
	case claim.ID == "":
		return false, nil
	}
	machines := &infrav1.ElementalMachineList{}
	err = c.List(ctx, machines, client.InNamespace(host.Namespace), client.MatchingFields{index.MachineByClaim: claim.ID}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("looking up the ElementalMachine of host %s: %w", host.Name, err)
	}
	for i := range machines.Items {
		if !annotations.HasPaused(&machines.Items[i]) {
			continue
		}
		if belongs, err := hasClaim(ctx, c, &machines.Items[i], host); belongs || err != nil {
			return belongs, err
		}
	}
	return false, nil
}

// hasClaim reports whether the ElementalMachine, which names the host's claim, is the one
// of the claim's Machine. Whoever may create ElementalMachines can name any claim. A
// missing Machine may be created later by a move or restore.
func hasClaim(ctx context.Context, c client.Reader, machine *infrav1.ElementalMachine, host *infrav1.ElementalHost) (bool, error) {
	owner := &clusterv1.Machine{}
	name := host.Spec.Claim.MachineName
	if err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, owner, client.UnsafeDisableDeepCopy)); err != nil {
		return false, fmt.Errorf("getting Machine %s: %w", name, err)
	}
	exists := owner.Name != ""
	return !exists || ownership.NamesInfraMachine(owner, machine), nil
}

// Cluster reports whether the objects of the Cluster are paused. As in Cluster API, the
// annotation on the Cluster pauses the Cluster alone.
func Cluster(cluster *clusterv1.Cluster) bool { return ptr.Deref(cluster.Spec.Paused, false) }
