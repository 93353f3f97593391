package preflight

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Need is what a Machine of kubeadm needs of its host. The zero value is a control-plane
// Machine of an unknown version, without a bundle.
type Need struct {
	// Version of Kubernetes; blank if any will do.
	Version string
	// Worker needs fewer ports.
	Worker bool
	// Replace: a bundle replaces the programs that the host has.
	Replace bool
	// Bundles are the architectures that a release of the version has a bundle for.
	Bundles []string
	// Ignore names findings that don't keep the Machine off the host.
	Ignore []infrav1.FindingName
}

// Finding is something on the host that is not as kubeadm and the kubelet need it.
type Finding struct {
	// Name is blank for a warning, which keeps no Machine off the host.
	Name infrav1.FindingName
	// Message is one line: what was found, and what a person can do.
	Message string
}

// Findings returns the findings on the host, those that keep a Machine off it first. Ignored
// ones are left out. A host in use has no findings of its operating system: its ports are
// taken by its own node, and the rest was looked at before.
func Findings(host *infrav1.ElementalHost, need Need) []Finding {
	inventory := host.Status.Inventory
	if inventory == nil {
		return nil
	}
	isBundled := installsBundle(host, need)
	var all []Finding
	if k := inventory.Kubernetes; k != nil {
		all = append(all, programs(k, need, isBundled)...)
	}
	if p := inventory.Preflight; p != nil && isUnused(host) {
		all = append(all, system(p, need, isBundled)...)
		if keepsRuntime(inventory.Kubernetes, need, isBundled) {
			all = append(all, runtimeSocket(p)...)
		}
		all = append(all, cgroups(p, refusesCgroupV1(inventory.Kubernetes, need, isBundled))...)
		all = append(all, nameServers(p, isBundled)...)
		all = append(all, space(p)...)
		all = append(all, clock(host.Status.Agent)...)
	}
	all = slices.DeleteFunc(all, func(f Finding) bool { return f.Name != "" && slices.Contains(need.Ignore, f.Name) })
	slices.SortStableFunc(all, func(a, b Finding) int { return rank(a) - rank(b) })
	return all
}

func rank(f Finding) int {
	if f.Name == "" {
		return 1
	}
	return 0
}

// Blocking returns the first findings that keep a Machine off the host.
func Blocking(findings []Finding) []Finding {
	warning := slices.IndexFunc(findings, func(f Finding) bool { return f.Name == "" })
	if warning < 0 {
		return findings
	}
	return findings[:warning]
}

// Messages returns one line for each finding.
func Messages(findings []Finding) []string {
	lines := make([]string, len(findings))
	for i, f := range findings {
		lines[i] = f.Message
	}
	return lines
}

// isUnused reports whether no Machine has claimed the host, and it runs no Node.
func isUnused(host *infrav1.ElementalHost) bool {
	return !host.IsAdoptable() && (host.Spec.Claim == nil || host.Spec.Claim.Phase == infrav1.ClaimReserved)
}

// installsBundle reports whether a bootstrap for the Machine installs a bundle on the host.
func installsBundle(host *infrav1.ElementalHost, need Need) bool {
	if !slices.Contains(need.Bundles, host.Status.Inventory.Architecture) || !host.Supports(infrav1.OperationType(protocol.CapabilityBundle)) {
		return false
	}
	k := host.Status.Inventory.Kubernetes
	return k != nil && (need.Replace || len(host.MissingPrograms()) > 0 ||
		slices.Contains([]infrav1.ProgramOrigin{k.Kubelet.Origin, k.Kubeadm.Origin, k.ContainerRuntime.Origin}, infrav1.OriginBundle))
}

// keepsRuntime reports whether the Machine's container runtime is the one that the host has.
func keepsRuntime(k *infrav1.HostKubernetes, need Need, isBundled bool) bool {
	return !isBundled || !need.Replace && k.ContainerRuntime.Path != "" && k.ContainerRuntime.Origin != infrav1.OriginBundle
}

// refusesCgroupV1 reports whether the Machine's kubelet is the one that the host has, and refuses
// version 1 of control groups unless its configuration allows it. The kubelet of a bundle has the
// configuration of the bundle.
func refusesCgroupV1(k *infrav1.HostKubernetes, need Need, isBundled bool) bool {
	if k == nil || isBundled && (need.Replace || k.Kubelet.Path == "" || k.Kubelet.Origin == infrav1.OriginBundle) {
		return false
	}
	v := parsed(cmp.Or(need.Version, k.Kubelet.Version))
	return v != nil && v.Minor() >= refusingCgroupV1
}

// parsed returns the version, or nil for a blank or strange one.
func parsed(text string) *version.Version {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return nil
	}
	return v
}
