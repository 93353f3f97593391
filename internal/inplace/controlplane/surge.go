package controlplane

import (
	"context"
	"fmt"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// RefuseSurge says why a new ElementalMachine must not be created; blank if it may. For a
// change of a control plane of one Machine, KubeadmControlPlane creates a second Machine first,
// and waits for it. Without a spare host it would wait for ever, and with one it would replace
// the first. It retries after a refusal, and has created nothing else by then.
func (r Reader) RefuseSurge(ctx context.Context, machine *infrav1.ElementalMachine) (string, error) {
	name := machine.Labels[clusterv1.ClusterNameLabel]
	_, isControlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
	if !isControlPlane || name == "" || r.Namespace != "" && r.Namespace != machine.Namespace {
		return "", nil
	}
	cluster := &clusterv1.Cluster{}
	if found, err := r.find(ctx, machine.Namespace, name, cluster); err != nil || !found {
		return "", err
	}
	mode, err := r.mode(ctx, cluster)
	if err != nil || mode == infrav1.InPlaceOff {
		return "", err
	}
	kcp, err := r.Get(ctx, cluster)
	if err != nil || kcp == nil || !IsSingle(kcp) || !kcp.DeletionTimestamp.IsZero() {
		return "", err
	}
	other, err := r.other(ctx, cluster, machine)
	if err != nil || other == nil {
		return "", err
	}
	if mode == infrav1.InPlaceRequired {
		return fmt.Sprintf("spec.inPlace.mode of ElementalCluster %s is Required: Machines are not replaced, and ElementalMachine %s exists; "+
			"its condition %s says how far its upgrade is", cluster.Spec.InfrastructureRef.Name, other.Name, infrav1.KubernetesUpToDateCondition), nil
	}
	target, err := r.target(ctx, kcp, cluster, other)
	if err != nil || target == (inplace.Target{}) {
		return "", err
	}
	return fmt.Sprintf("ElementalMachine %s is upgraded to %s in place", other.Name, target), nil
}

// target returns what the control plane is about to upgrade the ElementalMachine's host to; zero
// if it upgrades nothing, or not all that it changes can be changed in place.
func (r Reader) target(
	ctx context.Context, kcp *controlplanev1.KubeadmControlPlane, cluster *clusterv1.Cluster, infra *infrav1.ElementalMachine,
) (inplace.Target, error) {
	m, err := r.machine(ctx, cluster, infra)
	if err != nil || m == nil {
		return inplace.Target{}, err
	}
	change, err := r.Change(ctx, kcp, *m)
	if err != nil || change.Obstacle() != "" {
		return inplace.Target{}, err
	}
	return change.Target(), nil
}

// mode returns the mode of the cluster.
func (r Reader) mode(ctx context.Context, cluster *clusterv1.Cluster) (infrav1.InPlaceMode, error) {
	infra := &infrav1.ElementalCluster{}
	found, err := r.find(ctx, cluster.Namespace, cluster.Spec.InfrastructureRef.Name, infra)
	if err != nil {
		return "", err
	}
	if !found || !ownership.NamesInfraCluster(cluster, infra) {
		return infrav1.InPlaceOff, nil
	}
	return inplace.ModeOf(infra), nil
}

// other returns another ElementalMachine of the control plane that stays; nil if it is missing.
func (r Reader) other(ctx context.Context, cluster *clusterv1.Cluster, machine *infrav1.ElementalMachine) (*infrav1.ElementalMachine, error) {
	machines := &infrav1.ElementalMachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("listing ElementalMachines: %w", err)
	}
	for i := range machines.Items {
		if m := &machines.Items[i]; m.Name != machine.Name && m.DeletionTimestamp.IsZero() {
			return m, nil
		}
	}
	return nil, nil
}

// machine reads what belongs to the ElementalMachine; nil if it has no Machine or host yet, or
// if its Machine is being deleted.
func (r Reader) machine(ctx context.Context, cluster *clusterv1.Cluster, infra *infrav1.ElementalMachine) (*Machine, error) {
	owner, err := util.GetOwnerMachine(ctx, r.Client, infra.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting owner Machine: %w", err)
	}
	if owner == nil || infra.Spec.HostRef == nil || !owner.DeletionTimestamp.IsZero() || !ownership.IsInfraMachine(infra, owner) {
		return nil, nil
	}
	host := &infrav1.ElementalHost{}
	if found, err := r.find(ctx, infra.Namespace, infra.Spec.HostRef.Name, host); err != nil || !found {
		return nil, err
	}
	return &Machine{Cluster: cluster, Machine: owner, Infra: infra, Host: host}, nil
}

// find reads the object from the cache, and reports whether it exists.
func (r Reader) find(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting %T %s: %w", into, name, err)
	}
	return err == nil, nil
}
