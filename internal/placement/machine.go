package placement

import (
	"cmp"
	"context"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnelhost"
)

// Machine is a machine that needs a host, with the objects that say which.
type Machine struct {
	Machine *infrav1.ElementalMachine
	// Owner is the Machine; nil if it is unknown.
	Owner *clusterv1.Machine
	// Cluster and InfraCluster are nil if they do not exist.
	Cluster      *clusterv1.Cluster
	InfraCluster *infrav1.ElementalCluster
	// Release is the release of the Machine's version; nil if it does not exist.
	Release *infrav1.ElementalKubernetesRelease
}

// Constraints returns the constraints on the machine's host. Evaluations of the selector
// end with ctx.
func (m Machine) Constraints(ctx context.Context, selectors *selector.Compiler) Constraints {
	constraints := Constraints{
		HostName:           m.Machine.Spec.HostName,
		Selector:           selectors.Compile(ctx, m.Machine.Spec.HostSelector),
		OSImage:            m.Machine.Spec.OSImage != "",
		FailureDomainLabel: FailureDomainLabel(m.InfraCluster),
		ReservedFor:        m.reservedFor(),
		Preflight:          m.preflight(),
		Adoption:           NewAdoption(m.Cluster, m.InfraCluster, m.isControlPlane()),
	}
	if m.Owner != nil {
		constraints.FailureDomain = m.Owner.Spec.FailureDomain
	}
	if c := m.InfraCluster; c != nil && c.EndpointType() == infrav1.EndpointTypeTunnel {
		constraints.Feasible = tunnelhost.Feasible
	}
	if c := m.InfraCluster; c != nil && constraints.ReservedFor != "" && c.Spec.ControlPlaneEndpointPolicy.VIP != nil {
		constraints.Feasible = kubevip.Feasible(c.Spec.ControlPlaneEndpointPolicy.VIP, c.Spec.ControlPlaneEndpoint.Host)
	}
	return constraints
}

// RequiredHost returns the name of the host that the cluster's first control-plane machine
// must have, because its address is the endpoint; blank if any host will do or this is
// another machine.
func (m Machine) RequiredHost() string {
	if m.InfraCluster == nil || m.reservedFor() == "" || m.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef == nil {
		return ""
	}
	if ptr.Deref(m.Cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return ""
	}
	return m.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name
}

// MayClaim reports whether the machine may claim a host. By the InfraMachine contract it
// needs a provisioned cluster and bootstrap data, so that it uses the host at once. Owner
// and Cluster must be known.
func (m Machine) MayClaim() bool {
	return ptr.Deref(m.Cluster.Status.Initialization.InfrastructureProvisioned, false) &&
		m.Owner.Spec.Bootstrap.DataSecretName != nil &&
		m.Owner.DeletionTimestamp.IsZero()
}

// kubeadmConfig is the kind of the bootstrap configuration of machines that kubeadm bootstraps.
const kubeadmConfig = "KubeadmConfig"

// preflight returns what kubeadm needs of the host; nil for other bootstrap providers, which
// bring their own programs.
func (m Machine) preflight() *preflight.Need {
	if m.Owner == nil || m.Owner.Spec.Version == "" || m.Owner.Spec.Bootstrap.ConfigRef.Kind != kubeadmConfig {
		return nil
	}
	return Preflight(&m.Machine.Spec, m.Owner.Spec.Version, m.isControlPlane(), m.Release)
}

func (m Machine) isControlPlane() bool {
	if m.Owner == nil {
		return false
	}
	_, found := m.Owner.Labels[clusterv1.MachineControlPlaneLabel]
	return found
}

// Preflight returns what kubeadm needs of the host of a machine. release may be nil. A Node of
// a machine with an image of Elemental OS begins with the version that its host has.
func Preflight(spec *infrav1.ElementalMachineSpec, version string, isControlPlane bool, release *infrav1.ElementalKubernetesRelease) *preflight.Need {
	need := &preflight.Need{
		Version: version, Worker: !isControlPlane, Replace: spec.Programs == infrav1.ProgramsReplace, Ignore: spec.IgnoreFindings,
	}
	if spec.OSImage != "" {
		need.Version = ""
	}
	if release != nil {
		for i := range release.Spec.Bundles {
			need.Bundles = append(need.Bundles, release.Spec.Bundles[i].Architecture)
		}
	}
	return need
}

// reservedFor returns the name of the cluster whose reserved hosts the machine may have;
// blank for workers.
func (m Machine) reservedFor() string {
	if m.Cluster == nil || !m.isControlPlane() {
		return ""
	}
	return m.Cluster.Name
}

// FailureDomainLabel returns the host label that names a host's failure domain. The
// ElementalCluster may be nil.
func FailureDomainLabel(c *infrav1.ElementalCluster) string {
	if c == nil {
		return infrav1.DefaultFailureDomainLabel
	}
	return cmp.Or(c.Spec.FailureDomains.HostLabel, infrav1.DefaultFailureDomainLabel)
}
