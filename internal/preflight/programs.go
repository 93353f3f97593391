package preflight

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Kubernetes needs a container runtime that tells the kubelet its cgroup driver: containerd 2.
// kubeadm v1.36 warns of an older one, and announces that v1.37 refuses it.
const (
	containerdMajor      = 2
	warnsOfOldContainerd = 36
	refusesOldContainerd = 37
)

// programs returns findings of the programs that the bootstrap uses.
func programs(k *infrav1.HostKubernetes, need Need, isBundled bool) []Finding {
	if isBundled && need.Replace {
		return nil
	}
	var all []Finding
	found := map[string]*version.Version{}
	for _, p := range []struct {
		name    string
		program infrav1.HostProgram
	}{{"kubelet", k.Kubelet}, {"kubeadm", k.Kubeadm}} {
		isOfBundle := p.program.Origin == infrav1.OriginBundle
		switch is := parsed(p.program.Version); {
		case isBundled && (p.program.Path == "" || isOfBundle):
		case p.program.Path == "":
			all = append(all, Finding{infrav1.FindingPrograms, p.name + " is missing: install it"})
		case is == nil:
			all = append(all, Finding{infrav1.FindingPrograms,
				fmt.Sprintf("%s (%s) prints no version: check whether it runs, or install it again", p.name, p.program.Path)})
		default:
			found[p.name] = is
			all = append(all, ofAnotherMinor(p.name, p.program.Version, is, parsed(need.Version))...)
		}
	}
	if runtime := k.ContainerRuntime; runtime.Path != "" {
		if runtime.Name == infrav1.RuntimeContainerd && (!isBundled || runtime.Origin != infrav1.OriginBundle) {
			all = append(all, oldContainerd(runtime.Version, parsed(need.Version))...)
		}
	} else if !isBundled {
		all = append(all, Finding{infrav1.FindingPrograms, "A container runtime is missing: install containerd or CRI-O"})
	}
	// A Machine's version says more.
	if kubelet, kubeadm := found["kubelet"], found["kubeadm"]; need.Version == "" && kubelet != nil && kubeadm != nil && !isSameMinor(kubelet, kubeadm) {
		all = append(all, Finding{infrav1.FindingVersions,
			fmt.Sprintf("kubelet is %s and kubeadm is %s: install both of the same minor version", k.Kubelet.Version, k.Kubeadm.Version)})
	}
	return all
}

func isSameMinor(a, b *version.Version) bool { return a.Major() == b.Major() && a.Minor() == b.Minor() }

// minorOf returns the minor version of Kubernetes, such as 1.36.
func minorOf(v *version.Version) string { return fmt.Sprintf("%d.%d", v.Major(), v.Minor()) }

// ofAnotherMinor returns a finding if the program is of another minor version than the Machine.
// Which other ones kubeadm would accept does not matter: the Node would not have the version
// of its Machine.
func ofAnotherMinor(name, printed string, is, wanted *version.Version) []Finding {
	if wanted == nil || isSameMinor(is, wanted) {
		return nil
	}
	return []Finding{{infrav1.FindingVersions, fmt.Sprintf("%s is %s, and the Machine is of Kubernetes v%s: install that, or have a bundle replace it",
		name, printed, minorOf(wanted))}}
}

// oldContainerd returns a finding for a containerd that is too old.
func oldContainerd(printed string, wanted *version.Version) []Finding {
	is := parsed(printed)
	switch {
	case is == nil || is.Major() >= containerdMajor || wanted != nil && wanted.Minor() < warnsOfOldContainerd:
		return nil
	case wanted != nil && wanted.Minor() >= refusesOldContainerd:
		return []Finding{{infrav1.FindingVersions, fmt.Sprintf("containerd is %s, and Kubernetes v%s needs version 2: update it", printed, minorOf(wanted))}}
	default:
		return []Finding{{"", fmt.Sprintf("containerd is %s: update it to version 2, which Kubernetes v1.37 needs", printed)}}
	}
}
