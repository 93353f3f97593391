package upgrade

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace/controlplane"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
)

// scope holds what one reconcile has read and found out.
type scope struct {
	machine *infrav1.ElementalMachine
	owner   *clusterv1.Machine
	cluster *clusterv1.Cluster
	mode    infrav1.InPlaceMode
	// host that the machine has claimed.
	host *infrav1.ElementalHost
	// others are the cluster's other Machines. They are the cache's own objects.
	others []*clusterv1.Machine
	// controlPlaneVersion is that of a control plane without Machines; blank if unknown.
	controlPlaneVersion string
	// next is what the Machine is about to have; zero if it has it, or if the cluster's mode is
	// Off.
	next inplace.Target
	// kcp is the KubeadmControlPlane that wants it; nil for workers.
	kcp *controlplanev1.KubeadmControlPlane
	// release is that of the version that the Machine has or is about to have; nil if it does
	// not exist.
	release *infrav1.ElementalKubernetesRelease

	// condition is the condition KubernetesUpToDate; nil leaves it as it is.
	condition *metav1.Condition
}

// bundleOf returns the bundle of the release for the host; nil if it is missing.
func bundleOf(s *scope) *infrav1.HostBundle { return release.BundleFor(s.release, s.host) }

// read reads what belongs to the machine. It returns nil if there is nothing to do: the
// machine has no host with a Node, or it is paused or leaving.
func (r *Reconciler) read(ctx context.Context, machine *infrav1.ElementalMachine) (*scope, error) {
	s := &scope{machine: machine}
	ref, namespace := machine.Spec.HostRef, machine.Namespace
	owner, err := util.GetOwnerMachine(ctx, r.Client, machine.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting owner Machine: %w", err)
	}
	if owner == nil || ref == nil || !owner.DeletionTimestamp.IsZero() || !ownership.IsInfraMachine(machine, owner) {
		return nil, nil
	}
	s.owner = owner
	if s.cluster, err = reconcile.Get(ctx, r.Client, namespace, owner.Spec.ClusterName, &clusterv1.Cluster{}); err != nil {
		return nil, fmt.Errorf("getting Cluster: %w", err)
	}
	if s.cluster == nil || reconcile.IsPaused(s.cluster, machine, true) {
		return nil, nil
	}
	if s.host, err = reconcile.Get(ctx, r.Client, namespace, ref.Name, &infrav1.ElementalHost{}); err != nil {
		return nil, fmt.Errorf("getting ElementalHost: %w", err)
	}
	if !isReady(s.host, ref) {
		return nil, nil
	}
	if err := r.readVersions(ctx, s); err != nil {
		return nil, err
	}
	version := s.owner.Spec.Version
	if s.next.Version != "" && !inplace.IsMarked(owner.Annotations) {
		version = s.next.Version
	}
	s.release, err = release.Get(ctx, r.Client, namespace, version)
	return s, err
}

// isReady reports whether the host is the machine's and may be upgraded.
func isReady(host *infrav1.ElementalHost, ref *infrav1.HostReference) bool {
	return host != nil && host.Spec.Claim != nil && host.Spec.Claim.ID == ref.ClaimID &&
		host.Spec.Claim.Phase == infrav1.ClaimBound && host.Spec.Fence == nil && host.IsBootstrapped()
}

// readVersions reads the cluster's policy, its other Machines and what is next, as far as
// they matter.
func (r *Reconciler) readVersions(ctx context.Context, s *scope) error {
	infra, err := reconcile.Get(ctx, r.Client, s.machine.Namespace, s.cluster.Spec.InfrastructureRef.Name, &infrav1.ElementalCluster{})
	if err != nil {
		return fmt.Errorf("getting ElementalCluster: %w", err)
	}
	if infra != nil && ownership.NamesInfraCluster(s.cluster, infra) {
		s.mode = inplace.ModeOf(infra)
	}
	isMarked := inplace.IsMarked(s.owner.Annotations)
	outdated := meta.IsStatusConditionFalse(s.owner.Status.Conditions, clusterv1.MachineUpToDateCondition) && s.mode != infrav1.InPlaceOff && s.mode != ""
	if !isMarked && !outdated {
		return nil
	}
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(s.machine.Namespace),
		client.MatchingFields{index.MachineByCluster: s.cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing Machines: %w", err)
	}
	for i := range machines.Items {
		if other := &machines.Items[i]; other.Name != s.owner.Name {
			s.others = append(s.others, other)
		}
	}
	if isMarked {
		return r.readControlPlaneVersion(ctx, s)
	}
	return r.readNext(ctx, s)
}

// readNext reads the version and the image that the Machine's owner wants.
func (r *Reconciler) readNext(ctx context.Context, s *scope) error {
	version, template := s.owner.Spec.Version, clusterv1.ContractVersionedObjectReference{}
	if isControlPlane(s.owner) {
		var err error
		if s.kcp, err = r.controlPlanes().Get(ctx, s.cluster); err != nil || s.kcp == nil {
			return err
		}
		version, template = s.kcp.Spec.Version, s.kcp.Spec.MachineTemplate.Spec.InfrastructureRef
	} else if name := s.owner.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		deployment, err := reconcile.Get(ctx, r.APIReader, s.owner.Namespace, name, &clusterv1.MachineDeployment{})
		if err != nil {
			return fmt.Errorf("getting MachineDeployment: %w", err)
		}
		if deployment != nil {
			version, template = deployment.Spec.Template.Spec.Version, deployment.Spec.Template.Spec.InfrastructureRef
		}
	}
	if version != s.owner.Spec.Version {
		s.next = inplace.Target{Version: version}
		return nil
	}
	image, err := r.imageIn(ctx, s.owner.Namespace, template)
	if image != s.machine.Spec.OSImage {
		s.next = inplace.Target{OSImage: image}
	}
	return err
}

// imageIn returns the image that a template asks for; blank for none.
func (r *Reconciler) imageIn(ctx context.Context, namespace string, ref clusterv1.ContractVersionedObjectReference) (infrav1.OSImage, error) {
	if ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != "ElementalMachineTemplate" {
		return "", nil
	}
	template, err := reconcile.Get(ctx, r.Client, namespace, ref.Name, &infrav1.ElementalMachineTemplate{})
	if err != nil {
		return "", fmt.Errorf("getting ElementalMachineTemplate: %w", err)
	}
	if template == nil || template.Spec.Template.Spec == nil {
		return "", nil
	}
	return template.Spec.Template.Spec.OSImage, nil
}

func (r *Reconciler) controlPlanes() controlplane.Reader {
	return controlplane.Reader{Client: r.Client, APIReader: r.APIReader, Selectors: r.Selectors}
}
