package inplace

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
)

// State is the specification of a Machine, or of the Machines that a MachineSet makes.
type State struct {
	Machine        clusterv1.MachineSpec
	Infrastructure infrav1.ElementalMachineSpec
	// BootstrapKind is the kind of the bootstrap configuration, or of its template; blank
	// if it is missing.
	BootstrapKind string
	// Bootstrap is the bootstrap configuration's spec, as decoded JSON; nil if it is missing.
	Bootstrap map[string]any
}

// Change is a change of one Machine, or of all Machines of a MachineSet.
type Change struct {
	From, To State
	// Hosts of the Machines.
	Hosts []*infrav1.ElementalHost
	// Release of the version in To; nil if it is missing.
	Release *infrav1.ElementalKubernetesRelease
	// Matches reports whether a host meets a selector, which may be nil.
	Matches func(*infrav1.HostSelector, *infrav1.ElementalHost) bool
}

// Obstacle says why the change can't be made in place: it names the first field that the
// provider can't change, or what is missing. It is blank if the change can be made. It
// contains no values of the bootstrap configuration, which may be secret.
func (c Change) Obstacle() string {
	for _, find := range []func() string{c.machineObstacle, c.infrastructureObstacle, c.bootstrapObstacle, c.hostsObstacle} {
		if obstacle := find(); obstacle != "" {
			return obstacle
		}
	}
	return ""
}

// NewVersion reports whether the change has another version of Kubernetes.
func (c Change) NewVersion() bool { return c.From.Machine.Version != c.To.Machine.Version }

// Target returns what the change brings the hosts to; zero if they stay as they are.
func (c Change) Target() Target {
	switch {
	case c.NewVersion():
		return Target{Version: c.To.Machine.Version}
	case c.newImage():
		return Target{OSImage: c.To.Infrastructure.OSImage}
	default:
		return Target{}
	}
}

// newImage reports whether the change has another image. Without one, a host keeps its own.
func (c Change) newImage() bool {
	wanted := c.To.Infrastructure.OSImage
	return wanted != "" && wanted != c.From.Infrastructure.OSImage
}

func (c Change) machineObstacle() string {
	if obstacle := versionObstacle(c.From.Machine.Version, c.To.Machine.Version); obstacle != "" {
		return "spec.version of the Machine: " + obstacle
	}
	from, to := compared(c.From.Machine), compared(c.To.Machine)
	if equality.Semantic.DeepEqual(from, to) {
		return ""
	}
	return differs("Machine", difference("spec", tree(from), tree(to)))
}

// compared returns the fields of a Machine that Cluster API compares, except the version.
// It changes the others without asking, or never.
func compared(spec clusterv1.MachineSpec) clusterv1.MachineSpec {
	spec = *spec.DeepCopy()
	spec.Version, spec.ClusterName, spec.ProviderID = "", "", ""
	spec.Bootstrap, spec.InfrastructureRef = clusterv1.Bootstrap{}, clusterv1.ContractVersionedObjectReference{}
	spec.MinReadySeconds, spec.ReadinessGates, spec.Taints = nil, nil, nil
	spec.Deletion.NodeDrainTimeoutSeconds, spec.Deletion.NodeVolumeDetachTimeoutSeconds, spec.Deletion.NodeDeletionTimeoutSeconds = nil, nil, nil
	return spec
}

// infrastructureObstacle accepts another selector that the hosts still meet, another release
// policy, which takes effect when the Machine is deleted, and another image.
func (c Change) infrastructureObstacle() string {
	from, to := c.From.Infrastructure.DeepCopy(), c.To.Infrastructure.DeepCopy()
	if !equality.Semantic.DeepEqual(from.HostSelector, to.HostSelector) {
		for _, host := range c.Hosts {
			if !c.Matches(to.HostSelector, host) {
				return fmt.Sprintf("spec.hostSelector of the ElementalMachine: host %s does not meet it", host.Name)
			}
		}
	}
	if c.NewVersion() && c.newImage() {
		return "spec.osImage of the ElementalMachine can't be changed in place together with the version; keep the version"
	}
	from.HostSelector, from.Release, from.OSImage, from.IgnoreFindings = to.HostSelector, to.Release, to.OSImage, to.IgnoreFindings
	if equality.Semantic.DeepEqual(from, to) {
		return ""
	}
	return differs("ElementalMachine", difference("spec", tree(from), tree(to)))
}

// hostsObstacle requires what the upgrade of each host needs.
func (c Change) hostsObstacle() string {
	target := c.Target()
	if target == (Target{}) {
		return ""
	}
	for _, host := range c.Hosts {
		if obstacle := target.Obstacle(host); obstacle != "" {
			return obstacle
		}
	}
	if target.Version == "" {
		return ""
	}
	if c.Release == nil {
		return fmt.Sprintf("there is no ElementalKubernetesRelease %s in the namespace", release.Name(target.Version))
	}
	for _, host := range c.Hosts {
		if release.BundleFor(c.Release, host) == nil {
			return fmt.Sprintf("ElementalKubernetesRelease %s has no bundle for the architecture of host %s", c.Release.Name, host.Name)
		}
	}
	return ""
}

// differs returns the obstacle for a field; blank for none.
func differs(kind, path string) string {
	if path == "" {
		return ""
	}
	return fmt.Sprintf("%s of the %s can't be changed in place", path, kind)
}
