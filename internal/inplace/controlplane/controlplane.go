package controlplane

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/desiredstate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=*,verbs=get
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=kubeadmconfigs,verbs=get
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates;elementalkubernetesreleases,verbs=get;list;watch

// Reader reads what a control plane is about to change.
type Reader struct {
	// Client reads from the cache. Nothing is written.
	Client client.Client
	// APIReader reads past the cache: kinds of other providers, of which there is no cache.
	APIReader client.Reader
	// Selectors compiles selectors; nil compiles them without a cache.
	Selectors *selector.Compiler
	// Namespace is the only one that the cache has; blank for all.
	Namespace string
}

// Machine is a Machine of a control plane with what belongs to it.
type Machine struct {
	Cluster *clusterv1.Cluster
	Machine *clusterv1.Machine
	Infra   *infrav1.ElementalMachine
	Host    *infrav1.ElementalHost
}

// Get returns the cluster's KubeadmControlPlane; nil if its control plane is of another kind.
func (r Reader) Get(ctx context.Context, cluster *clusterv1.Cluster) (*controlplanev1.KubeadmControlPlane, error) {
	ref := cluster.Spec.ControlPlaneRef
	if ref.APIGroup != controlplanev1.GroupVersion.Group || ref.Kind != "KubeadmControlPlane" {
		return nil, nil
	}
	kcp := &controlplanev1.KubeadmControlPlane{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, kcp); err != nil {
		return nil, fmt.Errorf("getting KubeadmControlPlane %s: %w", ref.Name, err)
	}
	return kcp, nil
}

// IsSingle reports whether the control plane has one Machine. Cluster API never updates it in
// place by itself: it makes a second Machine first.
func IsSingle(kcp *controlplanev1.KubeadmControlPlane) bool {
	return ptr.Deref(kcp.Spec.Replicas, 1) == 1
}

// Change returns what the control plane is about to change of its Machine.
func (r Reader) Change(ctx context.Context, kcp *controlplanev1.KubeadmControlPlane, m Machine) (inplace.Change, error) {
	config, err := r.Config(ctx, m.Machine)
	if err != nil {
		return inplace.Change{}, err
	}
	change, err := r.change(ctx, kcp, m, config, true)
	if err != nil || config == nil || isForJoin(config) || change.Obstacle() == "" {
		return change, err
	}
	// The first Machine was made by initConfiguration. KubeadmControlPlane, too, compares with
	// that if joinConfiguration differs.
	return r.change(ctx, kcp, m, config, false)
}

// Config returns the Machine's KubeadmConfig; nil if it has none.
func (r Reader) Config(ctx context.Context, machine *clusterv1.Machine) (*bootstrapv1.KubeadmConfig, error) {
	ref := machine.Spec.Bootstrap.ConfigRef
	if ref.APIGroup != bootstrapv1.GroupVersion.Group || ref.Kind != "KubeadmConfig" {
		return nil, nil
	}
	config := &bootstrapv1.KubeadmConfig{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}, config); err != nil {
		return nil, fmt.Errorf("getting KubeadmConfig %s: %w", ref.Name, err)
	}
	return config, nil
}

func (r Reader) change(
	ctx context.Context, kcp *controlplanev1.KubeadmControlPlane, m Machine, config *bootstrapv1.KubeadmConfig, asJoin bool,
) (inplace.Change, error) {
	machine, err := desiredstate.ComputeDesiredMachine(kcp, m.Cluster, m.Machine.Spec.FailureDomain, m.Machine)
	if err != nil {
		return inplace.Change{}, fmt.Errorf("computing the desired Machine: %w", err)
	}
	machine.Spec.Version = kcp.Spec.Version
	template := &infrav1.ElementalMachineTemplate{}
	name := kcp.Spec.MachineTemplate.Spec.InfrastructureRef.Name
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: kcp.Namespace, Name: name}, template); err != nil {
		return inplace.Change{}, fmt.Errorf("getting ElementalMachineTemplate %s: %w", name, err)
	}
	change := inplace.Change{
		From:  inplace.State{Machine: m.Machine.Spec, Infrastructure: m.Infra.Spec},
		To:    inplace.State{Machine: machine.Spec, Infrastructure: desiredInfrastructure(template, m.Infra)},
		Hosts: []*infrav1.ElementalHost{m.Host},
		Matches: func(s *infrav1.HostSelector, host *infrav1.ElementalHost) bool {
			return r.Selectors.Compile(ctx, s).Select(host) == selector.Selected
		},
	}
	if change.Release, err = release.Get(ctx, r.Client, kcp.Namespace, kcp.Spec.Version); err != nil {
		return inplace.Change{}, err
	}
	if config == nil {
		return change, nil
	}
	desired, err := desiredstate.ComputeDesiredKubeadmConfig(kcp, m.Cluster, asJoin, m.Machine.Name, config)
	if err != nil {
		return inplace.Change{}, fmt.Errorf("computing the desired KubeadmConfig: %w", err)
	}
	from, to := normalize(config.Spec, desired.Spec, asJoin && !isForJoin(config))
	change.From.BootstrapKind, change.To.BootstrapKind = "KubeadmConfig", "KubeadmConfig"
	if change.From.Bootstrap, err = decoded(from); err != nil {
		return inplace.Change{}, err
	}
	change.To.Bootstrap, err = decoded(to)
	return change, err
}

// desiredInfrastructure returns the template's spec with what the provider has written.
func desiredInfrastructure(template *infrav1.ElementalMachineTemplate, is *infrav1.ElementalMachine) infrav1.ElementalMachineSpec {
	var spec infrav1.ElementalMachineSpec
	if template.Spec.Template.Spec != nil {
		spec = *template.Spec.Template.Spec.DeepCopy()
	}
	spec.ProviderID, spec.HostRef = is.Spec.ProviderID, is.Spec.HostRef
	return spec
}

// decoded returns the spec as decoded JSON.
func decoded(spec bootstrapv1.KubeadmConfigSpec) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encoding a KubeadmConfig: %w", err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("decoding a KubeadmConfig: %w", err)
	}
	return out, nil
}
