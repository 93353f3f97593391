package replacement

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets;machinedeployments,verbs=get
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get

// maxConcurrent bounds the deletions that are judged at once, because each reads past the cache
// and everybody who reaches the webhook's port can ask.
const maxConcurrent = 8

// Guard knows which deletions of Machines are replacements that nobody has agreed to.
type Guard struct {
	reader    client.Reader
	namespace string
	// slots bounds the deletions that are judged at once.
	slots chan struct{}
}

// New returns a Guard. The reader must read past the cache: what an owner has deleted a moment ago
// must not count. namespace is the only one that the manager watches; blank for all.
func New(reader client.Reader, namespace string) *Guard {
	return &Guard{reader: reader, namespace: namespace, slots: make(chan struct{}, maxConcurrent)}
}

// RefuseDeletion says why a controller must not delete the Machine; blank if it may. It may if
// the Machine has no Node yet, if a person or a MachineHealthCheck wants it to go, and if its
// owner is being deleted or has more Machines than it wants.
func (g *Guard) RefuseDeletion(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	if !machine.Status.NodeRef.IsDefined() || isWanted(machine) || g.namespace != "" && g.namespace != machine.Namespace {
		return "", nil
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for other deletions: %w", context.Cause(ctx))
	}
	infra, err := g.infraCluster(ctx, machine)
	if err != nil || inplace.ModeOf(infra) != infrav1.InPlaceRequired {
		return "", err
	}
	o, err := g.owner(ctx, machine)
	if err != nil || o == nil {
		return "", err
	}
	has, err := g.count(ctx, machine, o)
	if err != nil || !o.replaces(machine, has) {
		return "", err
	}
	return fmt.Sprintf("spec.inPlace.mode of ElementalCluster %s is Required, and Machine %s would be replaced and its host reset: %s wants %d Machines and has %d. "+
		"To have it replaced, set the annotation %s on the Machine, or another mode. To have it changed in place, see the condition %s of ElementalMachine %s",
		infra.Name, machine.Name, o.name, o.wants, has, clusterv1.DeleteMachineAnnotation, infrav1.KubernetesUpToDateCondition, machine.Spec.InfrastructureRef.Name), nil
}

// isWanted reports whether the deletion of the Machine was asked for: by a person or an
// autoscaler, by a MachineHealthCheck, or by `clusterctl move`. A Machine that is being deleted
// already can't be kept.
func isWanted(machine *clusterv1.Machine) bool {
	for _, key := range []string{clusterv1.DeleteMachineAnnotation, clusterv1.RemediateMachineAnnotation, clusterctlv1.DeleteForMoveAnnotation} {
		if _, found := machine.Annotations[key]; found {
			return true
		}
	}
	return !machine.DeletionTimestamp.IsZero() || collections.IsUnhealthyAndOwnerRemediated(machine)
}

// infraCluster returns the ElementalCluster of the Machine's Cluster; nil if it is missing, or if
// the Cluster is being deleted.
func (g *Guard) infraCluster(ctx context.Context, machine *clusterv1.Machine) (*infrav1.ElementalCluster, error) {
	cluster := &clusterv1.Cluster{}
	if found, err := g.find(ctx, machine, machine.Spec.ClusterName, cluster); err != nil || !found {
		return nil, err
	}
	infra := &infrav1.ElementalCluster{}
	found, err := g.find(ctx, machine, cluster.Spec.InfrastructureRef.Name, infra)
	if err != nil || !found || !ownership.NamesInfraCluster(cluster, infra) {
		return nil, err
	}
	return infra, nil
}

// owner is what makes and deletes Machines.
type owner struct {
	// name of the owner for people, with its kind.
	name string
	// wants is how many Machines the owner is to have, and surge how many more it may have
	// while it replaces some.
	wants, surge int
	// has reports whether a Machine of the cluster is one of the owner's.
	has func(*clusterv1.Machine) bool
}

// replaces reports whether the owner, which has so many Machines, deletes the Machine in order to
// replace it. During a surge that is so for an outdated Machine only.
func (o *owner) replaces(machine *clusterv1.Machine, has int) bool {
	switch {
	case has > o.wants+o.surge:
		return false
	case has > o.wants:
		return conditions.IsFalse(machine, clusterv1.MachineUpToDateCondition)
	default:
		return true
	}
}

// owner returns the KubeadmControlPlane or MachineDeployment of the Machine; nil if it has
// another owner, which replaces no Machines, or if its owner is being deleted.
func (g *Guard) owner(ctx context.Context, machine *clusterv1.Machine) (*owner, error) {
	ref := metav1.GetControllerOf(machine)
	switch {
	case ref == nil:
		return nil, nil
	case ref.Kind == "KubeadmControlPlane":
		return g.controlPlane(ctx, machine, ref)
	case ref.Kind == "MachineSet":
		return g.deployment(ctx, machine, ref)
	default:
		return nil, nil
	}
}

func (g *Guard) controlPlane(ctx context.Context, machine *clusterv1.Machine, ref *metav1.OwnerReference) (*owner, error) {
	kcp := &controlplanev1.KubeadmControlPlane{}
	if found, err := g.find(ctx, machine, ref.Name, kcp); err != nil || !found {
		return nil, err
	}
	return newOwner("KubeadmControlPlane "+kcp.Name, kcp.Spec.Replicas, kcp.Spec.Rollout.Strategy.RollingUpdate.MaxSurge,
		func(other *clusterv1.Machine) bool { return metav1.IsControlledBy(other, kcp) })
}

func (g *Guard) deployment(ctx context.Context, machine *clusterv1.Machine, ref *metav1.OwnerReference) (*owner, error) {
	set := &clusterv1.MachineSet{}
	if found, err := g.find(ctx, machine, ref.Name, set); err != nil || !found {
		return nil, err
	}
	ref = metav1.GetControllerOf(set)
	if ref == nil {
		return nil, nil
	}
	d := &clusterv1.MachineDeployment{}
	if found, err := g.find(ctx, machine, ref.Name, d); err != nil || !found {
		return nil, err
	}
	const label = clusterv1.MachineDeploymentNameLabel
	return newOwner("MachineDeployment "+d.Name, d.Spec.Replicas, d.Spec.Rollout.Strategy.RollingUpdate.MaxSurge,
		func(other *clusterv1.Machine) bool { return other.Labels[label] == machine.Labels[label] })
}

// newOwner returns an owner that is to have so many replicas. A surge is a number or a
// percentage of them, and both have defaults of Cluster API.
func newOwner(name string, replicas *int32, maxSurge *intstr.IntOrString, has func(*clusterv1.Machine) bool) (*owner, error) {
	o := &owner{name: name, wants: int(ptr.Deref(replicas, 1)), has: has}
	surge := intstr.ValueOrDefault(maxSurge, intstr.FromInt32(1))
	var err error
	if o.surge, err = intstr.GetScaledValueFromIntOrPercent(surge, o.wants, true); err != nil {
		return nil, fmt.Errorf("reading maxSurge of %s: %w", name, err)
	}
	return o, nil
}

// count returns how many Machines the owner has, without those that are being deleted.
func (g *Guard) count(ctx context.Context, machine *clusterv1.Machine, o *owner) (int, error) {
	all := &clusterv1.MachineList{}
	if err := g.reader.List(ctx, all, client.InNamespace(machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: machine.Spec.ClusterName}); err != nil {
		return 0, fmt.Errorf("listing Machines: %w", err)
	}
	count := 0
	for i := range all.Items {
		if other := &all.Items[i]; other.DeletionTimestamp.IsZero() && o.has(other) {
			count++
		}
	}
	return count, nil
}

// find reads an object in the Machine's namespace, and reports whether it exists and stays.
func (g *Guard) find(ctx context.Context, machine *clusterv1.Machine, name string, into client.Object) (bool, error) {
	err := g.reader.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: name}, into)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting %T %s: %w", into, name, err)
	}
	return err == nil && into.GetDeletionTimestamp().IsZero(), nil
}
