package explain

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/objects"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

const (
	// pageSize is the number of objects in memory at a time.
	pageSize = 500
	// firstNames is how many objects are named unless all are asked for.
	firstNames = 20
)

// Explainer makes reports from what the API server has now.
type Explainer struct {
	// Client reads from the API server, without a cache.
	Client    client.Reader
	Clock     clock.PassiveClock
	Selectors *selector.Compiler
	// All has reports name all objects, not only the first ones.
	All bool
}

// limit returns how many objects are named.
func (e *Explainer) limit(found int) int {
	if e.All {
		return found
	}
	return min(found, firstNames)
}

// machine reads the Machine with the name, or the ElementalMachine, and what belongs to it.
func (e *Explainer) machine(ctx context.Context, namespace, name string) (placement.Machine, error) {
	owner, err := objects.Get(ctx, e.Client, namespace, name, &clusterv1.Machine{})
	if err != nil {
		return placement.Machine{}, err
	}
	if owner != nil {
		name = owner.Spec.InfrastructureRef.Name
		if ref := owner.Spec.InfrastructureRef; ref.Kind != "ElementalMachine" {
			return placement.Machine{}, fmt.Errorf("the infrastructure of Machine %s is a %s, not an ElementalMachine", owner.Name, ref.Kind)
		}
	}
	machine, err := objects.Get(ctx, e.Client, namespace, name, &infrav1.ElementalMachine{})
	switch {
	case err != nil:
		return placement.Machine{}, err
	case machine == nil && owner != nil:
		return placement.Machine{}, fmt.Errorf(
			"the ElementalMachine %s of Machine %s does not exist; delete the Machine to have it replaced", name, owner.Name)
	case machine == nil:
		return placement.Machine{}, fmt.Errorf("there is no Machine or ElementalMachine %s in namespace %s; name another, or give --namespace", name, namespace)
	}
	return e.complete(ctx, machine)
}

// complete reads what belongs to an ElementalMachine. As for the manager, the Machine counts
// only if both refer to each other.
func (e *Explainer) complete(ctx context.Context, machine *infrav1.ElementalMachine) (placement.Machine, error) {
	m := placement.Machine{Machine: machine}
	clusterName := machine.Labels[clusterv1.ClusterNameLabel]
	for _, ref := range machine.OwnerReferences {
		if ref.Kind != "Machine" {
			continue
		}
		owner, err := objects.Get(ctx, e.Client, machine.Namespace, ref.Name, &clusterv1.Machine{})
		if err != nil {
			return m, err
		}
		if owner != nil && ownership.IsInfraMachine(machine, owner) {
			m.Owner, clusterName = owner, owner.Spec.ClusterName
		}
	}
	var err error
	if m.Owner != nil {
		if m.Release, err = release.Get(ctx, e.Client, machine.Namespace, m.Owner.Spec.Version); err != nil {
			return m, err
		}
	}
	m.Cluster, m.InfraCluster, err = e.cluster(ctx, machine.Namespace, clusterName)
	return m, err
}

// cluster reads a Cluster and its ElementalCluster; nil if they do not exist, or if the
// Cluster is of another provider.
func (e *Explainer) cluster(ctx context.Context, namespace, name string) (*clusterv1.Cluster, *infrav1.ElementalCluster, error) {
	cluster, err := objects.Get(ctx, e.Client, namespace, name, &clusterv1.Cluster{})
	if err != nil || cluster == nil {
		return nil, nil, err
	}
	infra, err := objects.Get(ctx, e.Client, namespace, cluster.Spec.InfrastructureRef.Name, &infrav1.ElementalCluster{})
	if err != nil || infra == nil || !ownership.NamesInfraCluster(cluster, infra) {
		return cluster, nil, err
	}
	return cluster, infra, nil
}

// each lists objects by pages into list, and calls visit after each page.
func each(ctx context.Context, c client.Reader, list client.ObjectList, visit func() error, options ...client.ListOption) error {
	next := ""
	for {
		page := append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, options...)
		if err := c.List(ctx, list, page...); err != nil {
			return fmt.Errorf("listing objects: %w", err)
		}
		if err := visit(); err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
