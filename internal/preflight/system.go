package preflight

import (
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// enoughSpace is the free space, in bytes, below which images may not fit.
const enoughSpace = 4 << 30

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

// warnings returns findings that keep no Machine off the host: its configuration may allow
// them, or they may pass.
func warnings(p *infrav1.HostPreflight, hasNoRuntime bool) []Finding {
	var all []Finding
	warn := func(format string, args ...any) { all = append(all, Finding{"", fmt.Sprintf(format, args...)}) }
	if p.CgroupVersion == 1 {
		warn("The host has cgroup v1, which kubelets refuse since v1.35 unless failCgroupV1 is false: boot with systemd.unified_cgroup_hierarchy=1")
	}
	if p.RuntimeSocket == infrav1.FeatureDisabled && !hasNoRuntime {
		warn("Nothing listens on the socket of the container runtime: start the runtime, and enable its unit")
	}
	if p.NameServers == infrav1.FeatureMissing {
		warn("/etc/resolv.conf names no name server: configure one")
	}
	if p.FreeBytes > 0 && p.FreeBytes < enoughSpace {
		warn("Less than %d GiB are free below /var/lib: make room for images", enoughSpace>>30)
	}
	return all
}
