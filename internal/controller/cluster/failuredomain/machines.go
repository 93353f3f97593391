package failuredomain

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// machines summarizes the control plane's Machines, without those that are being
// deleted: their replacements must not be placed by them.
type machines struct {
	// domains are the Machines' failure domains.
	domains []string
	// placed is the number of Machines with a host or a Node.
	placed int32
	// waiting: a Machine has no host yet. The control plane does nothing else until
	// the Machine is a Node or deleted, and then replaced.
	waiting bool
	// outdated: the control plane replaces a Machine, as it is not up to date.
	outdated bool
}

// createsNext reports whether the next step of the control plane is to create a Machine.
// While it has as many up-to-date Machines as it needs, the next step is not known, and
// createsNext returns false: a Machine that is created in the wrong failure domain can be
// replaced, a Machine that is deleted in the wrong one is gone.
func (m machines) createsNext(is scope.ControlPlane) bool {
	switch {
	case m.waiting || m.placed < is.Replicas:
		return true
	case m.placed > is.Replicas:
		return false
	default:
		return m.outdated && is.Surges
	}
}

// machines reads the control plane's Machines.
func (f Finder) machines(ctx context.Context, s *scope.Scope) (machines, error) {
	list := &clusterv1.MachineList{}
	err := f.Reader.Client.List(ctx, list, client.InNamespace(s.Cluster.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index.MachineByCluster: s.Cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return machines{}, fmt.Errorf("listing control-plane Machines: %w", err)
	}
	// Without the watch filter: a Machine may have a host of another manager.
	hosts, err := reconcile.ListHosts(ctx, f.Reader.Client, s.Cluster.Namespace, "", client.MatchingFields{index.HostByCluster: s.Cluster.Name})
	if err != nil {
		return machines{}, err
	}
	placed := map[string]bool{}
	for _, host := range hosts {
		if isControlPlane(s.InfraCluster, host) {
			placed[host.Spec.Claim.MachineName] = true
		}
	}
	var found machines
	for i := range list.Items {
		m := &list.Items[i]
		if !m.DeletionTimestamp.IsZero() {
			continue
		}
		if m.Spec.FailureDomain != "" {
			found.domains = append(found.domains, m.Spec.FailureDomain)
		}
		if placed[m.Name] || m.Status.NodeRef.IsDefined() {
			found.placed++
		} else {
			found.waiting = true
		}
		found.outdated = found.outdated || isOutdated(m)
	}
	return found, nil
}

// isOutdated reports whether the control plane is to replace the Machine, as it is not up
// to date.
func isOutdated(m *clusterv1.Machine) bool {
	return meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineUpToDateCondition)
}
