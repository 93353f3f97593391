package hooks

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// canUpdateMachine answers whether the Machine of a control plane can be changed in place.
func (h *hooks) canUpdateMachine(
	ctx context.Context, q *runtimehooksv1.CanUpdateMachineRequest, answer *runtimehooksv1.CanUpdateMachineResponse,
) error {
	machine := &q.Current.Machine
	if !isOurs(machine.Spec.InfrastructureRef, "ElementalMachine") {
		return nil
	}
	mode, err := h.mode(ctx, machine.Namespace, machine.Spec.ClusterName)
	if err != nil || mode == infrav1.InPlaceOff {
		return err
	}
	is, err := decodeObjects(q.Current.InfrastructureMachine, q.Current.BootstrapConfig, false)
	if err != nil {
		return err
	}
	wanted, err := decodeObjects(q.Desired.InfrastructureMachine, q.Desired.BootstrapConfig, false)
	if err != nil {
		return err
	}
	_, host, err := h.host(ctx, machine.Namespace, machine.Spec.InfrastructureRef.Name)
	if err != nil {
		return err
	}
	if host == nil {
		return refuse(ctx, mode, fmt.Sprintf("ElementalMachine %s has no host", machine.Spec.InfrastructureRef.Name), answer)
	}
	change := inplace.Change{
		From: inplace.State{Machine: machine.Spec}, To: inplace.State{Machine: q.Desired.Machine.Spec}, Hosts: []*infrav1.ElementalHost{host},
	}
	if err := h.complete(ctx, &change, machine.Namespace, is, wanted); err != nil {
		return err
	}
	if obstacle := change.Obstacle(); obstacle != "" {
		return refuse(ctx, mode, obstacle, answer)
	}
	if answer.MachinePatch, err = patchVersion("/spec/version", machine.Spec.Version, q.Desired.Machine.Spec.Version); err != nil {
		return err
	}
	if answer.InfrastructureMachinePatch, err = patchObject("/spec", is.infrastructure.spec, wanted.infrastructure.spec); err != nil {
		return err
	}
	answer.BootstrapConfigPatch, err = patchObject("/spec", is.bootstrap.spec, wanted.bootstrap.spec)
	return err
}

// canUpdateMachineSet answers whether all Machines of a MachineSet can be changed in place.
// Cluster API remembers an answer without an error for a day.
func (h *hooks) canUpdateMachineSet(
	ctx context.Context, q *runtimehooksv1.CanUpdateMachineSetRequest, answer *runtimehooksv1.CanUpdateMachineSetResponse,
) error {
	set, machine := &q.Current.MachineSet, &q.Current.MachineSet.Spec.Template.Spec
	desired := &q.Desired.MachineSet.Spec.Template.Spec
	const kind = "ElementalMachineTemplate"
	if !isOurs(machine.InfrastructureRef, kind) || !isOurs(desired.InfrastructureRef, kind) {
		return nil
	}
	mode, err := h.mode(ctx, set.Namespace, set.Spec.ClusterName)
	if err != nil || mode == infrav1.InPlaceOff {
		return err
	}
	is, err := decodeObjects(q.Current.InfrastructureMachineTemplate, q.Current.BootstrapConfigTemplate, true)
	if err != nil {
		return err
	}
	wanted, err := decodeObjects(q.Desired.InfrastructureMachineTemplate, q.Desired.BootstrapConfigTemplate, true)
	if err != nil {
		return err
	}
	change := inplace.Change{From: inplace.State{Machine: *machine}, To: inplace.State{Machine: *desired}}
	if change.Hosts, err = h.hostsOf(ctx, set); err != nil {
		return err
	}
	if err := h.complete(ctx, &change, set.Namespace, is, wanted); err != nil {
		return err
	}
	if obstacle := change.Obstacle(); obstacle != "" {
		return refuse(ctx, mode, obstacle, answer)
	}
	const at = "/spec/template/spec"
	if answer.MachineSetPatch, err = patchVersion(at+"/version", machine.Version, desired.Version); err != nil {
		return err
	}
	if answer.InfrastructureMachineTemplatePatch, err = patchObject(at, is.infrastructure.spec, wanted.infrastructure.spec); err != nil {
		return err
	}
	answer.BootstrapConfigTemplatePatch, err = patchObject(at, is.bootstrap.spec, wanted.bootstrap.spec)
	return err
}

// complete adds to the change what both hooks have in common.
func (h *hooks) complete(ctx context.Context, change *inplace.Change, namespace string, is, wanted objects) error {
	if err := is.addTo(&change.From); err != nil {
		return err
	}
	if err := wanted.addTo(&change.To); err != nil {
		return err
	}
	var err error
	if change.Release, err = release.Get(ctx, h.client, namespace, change.To.Machine.Version); err != nil {
		return err
	}
	change.Matches = func(s *infrav1.HostSelector, host *infrav1.ElementalHost) bool {
		return h.selectors.Compile(ctx, s).Select(host) == selector.Selected
	}
	return nil
}

// hostsOf returns the hosts of the MachineSet's Machines. They are the cache's own objects.
// Machines without a host are left out: they can't be upgraded before they are Nodes.
func (h *hooks) hostsOf(ctx context.Context, set *clusterv1.MachineSet) ([]*infrav1.ElementalHost, error) {
	selected, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("parsing spec.selector of the MachineSet: %w", err)
	}
	machines := &clusterv1.MachineList{}
	if err := h.client.List(ctx, machines, client.InNamespace(set.Namespace), client.MatchingFields{index.MachineByCluster: set.Spec.ClusterName},
		client.MatchingLabelsSelector{Selector: selected}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	names := make(map[string]bool, len(machines.Items))
	for i := range machines.Items {
		names[machines.Items[i].Name] = true
	}
	claimed := &infrav1.ElementalHostList{}
	if err := h.client.List(ctx, claimed, client.InNamespace(set.Namespace), client.MatchingFields{index.HostByCluster: set.Spec.ClusterName},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ElementalHosts: %w", err)
	}
	var hosts []*infrav1.ElementalHost
	for i := range claimed.Items {
		if host := &claimed.Items[i]; host.Spec.Claim != nil && host.IsBoundOrHeld() && names[host.Spec.Claim.MachineName] {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}
