package preflight

import (
	"fmt"
	"slices"
	"strings"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// leastSpace is the free space, in bytes, below which the images of a node do not fit.
	leastSpace = 1 << 30
	// ampleSpace is the free space, in bytes, from which on the images of users fit too.
	ampleSpace = 4 << 30
	// refusingCgroupV1 is the minor version of Kubernetes from which on kubeadm and the kubelet
	// refuse version 1 of control groups unless they are told otherwise.
	refusingCgroupV1 = 35
	// clockTolerance is by how much the host's clock may differ from the manager's.
	clockTolerance = 5 * time.Minute
)

// portsOfControlPlane returns the ports that a control-plane node needs and a worker does not:
// etcd, the controller manager and the scheduler. The API server's is not among them: on a
// worker, the forwarder of an endpoint of type Tunnel listens there, and a free host that serves
// it belongs to another cluster.
func portsOfControlPlane() []int32 { return []int32{2379, 2380, 10257, 10259} }

// system returns findings of the operating system that keep Machines off the host. Bundles have
// files for the module and for forwarding.
func system(p *infrav1.HostPreflight, need Need, isBundled bool) []Finding {
	var all []Finding
	if p.Swap == infrav1.FeatureEnabled {
		all = append(all, Finding{infrav1.FindingSwap, "Swap is on, and kubelets refuse to start with it: run swapoff -a, and remove swap from /etc/fstab"})
	}
	switch {
	case p.BridgeNetfilter == infrav1.FeatureMissing:
		all = append(all, Finding{infrav1.FindingBridgeNetfilter, "The kernel has no module br_netfilter: install the kernel's package of modules"})
	case p.BridgeNetfilter == infrav1.FeatureDisabled && !isBundled:
		all = append(all, Finding{infrav1.FindingBridgeNetfilter,
			"br_netfilter is not in use: run modprobe br_netfilter, set net.bridge.bridge-nf-call-iptables to 1, and name both in /etc/modules-load.d and /etc/sysctl.d"})
	}
	if p.IPForwarding == infrav1.FeatureDisabled && !isBundled {
		all = append(all, Finding{infrav1.FindingIPForwarding, "net.ipv4.ip_forward is 0: set it to 1, and name it in /etc/sysctl.d"})
	}
	return append(all, ports(p.TakenPorts, need.Worker)...)
}

func ports(taken []int32, isWorker bool) []Finding {
	var names []string
	for _, port := range taken {
		if !isWorker || !slices.Contains(portsOfControlPlane(), port) {
			names = append(names, fmt.Sprint(port))
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return []Finding{{infrav1.FindingPorts, fmt.Sprintf("Port %s is taken: stop the program that listens there, which ss -ltnp shows", names[0])}}
	default:
		return []Finding{{infrav1.FindingPorts,
			fmt.Sprintf("Ports %s are taken: stop the programs that listen there, which ss -ltnp shows", strings.Join(names, ", "))}}
	}
}

// runtimeSocket returns a finding if the host's container runtime does not run: kubeadm's own
// preflight ends with an error.
func runtimeSocket(p *infrav1.HostPreflight) []Finding {
	if p.RuntimeSocket != infrav1.FeatureDisabled {
		return nil
	}
	return []Finding{{infrav1.FindingRuntime, "The container runtime does not run, nothing listens on its socket: start it, and enable its unit"}}
}

// cgroups returns a finding if the kubelet refuses the host's control groups, and a warning if its
// configuration decides: it may come with a bundle or with the bootstrap data.
func cgroups(p *infrav1.HostPreflight, isRefused bool) []Finding {
	switch {
	case p.CgroupVersion != 1:
		return nil
	case isRefused && p.KubeletCgroupV1 == infrav1.FeatureDisabled:
		return []Finding{{infrav1.FindingCgroupVersion, "The host has cgroup v1, which kubeadm and the kubelet refuse since v1.35: boot with systemd.unified_cgroup_hierarchy=1"}}
	default:
		return []Finding{{"", "The host has cgroup v1, which kubelets refuse since v1.35 unless failCgroupV1 is false: boot with systemd.unified_cgroup_hierarchy=1"}}
	}
}

// nameServers returns a finding if the host can't find the registry of images. A bundle brings the
// images, so that the bootstrap needs no registry.
func nameServers(p *infrav1.HostPreflight, isBundled bool) []Finding {
	name := infrav1.FindingNameServers
	switch {
	case p.NameServers != infrav1.FeatureMissing:
		return nil
	case isBundled:
		name = ""
	}
	return []Finding{{name, "/etc/resolv.conf names no name server, so that the host finds no registry: configure one"}}
}

func space(p *infrav1.HostPreflight) []Finding {
	switch {
	case p.FreeBytes <= 0 || p.FreeBytes >= ampleSpace:
		return nil
	case p.FreeBytes < leastSpace:
		return []Finding{{infrav1.FindingDiskSpace,
			fmt.Sprintf("Less than %d GiB is free below /var/lib, and the images of Kubernetes need more: make room", leastSpace>>30)}}
	default:
		return []Finding{{"", fmt.Sprintf("Less than %d GiB are free below /var/lib: make room for images", ampleSpace>>30)}}
	}
}

// clock returns a finding if the host's clock differs from the manager's by more than Cluster API
// and kubeadm allow for: they date certificates back by five minutes, and tokens live for fifteen.
func clock(agent *infrav1.HostAgent) []Finding {
	if agent == nil {
		return nil
	}
	skew, direction := time.Duration(agent.ClockSkewSeconds)*time.Second, "ahead of"
	if skew < 0 {
		skew, direction = -skew, "behind"
	}
	if skew <= clockTolerance {
		return nil
	}
	return []Finding{{infrav1.FindingClock,
		fmt.Sprintf("The clock is %d minutes %s the manager's: set up the time service, then run systemctl restart elemental-agent", int(skew.Minutes()), direction)}}
}
