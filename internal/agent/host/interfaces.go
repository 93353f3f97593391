package host

import (
	"encoding/hex"
	"net"
	"strings"
)

// podInterfaces are the names that CNI plugins and kube-proxy give. A trailing
// "*" stands for anything.
func podInterfaces() []string {
	return []string{
		"cni0", "cni-podman*", "flannel*", "cali*", "vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali",
		"cilium_*", "lxc*", "kube-ipvs0", "kube-bridge", "kube-dummy-if", "nodelocaldns", "weave", "vethwe*", "datapath",
		"antrea-*", "ovn-k8s-*", "genev_sys_*",
	}
}

// isPodInterface also knows names that others use as well and that are
// therefore no leftovers.
func isPodInterface(name string) bool {
	return isMadeByCNI(name) || matches(name, "veth*") || matches(name, "docker*") || matches(name, "br-*") || matches(name, "virbr*")
}

func isMadeByCNI(name string) bool {
	for _, pattern := range podInterfaces() {
		if matches(name, pattern) {
			return true
		}
	}
	return false
}

func matches(name, pattern string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return name == pattern || open && strings.HasPrefix(name, prefix)
}

func isProperIPv4(address *net.IPNet) bool {
	ones, _ := address.Mask.Size()
	return address.IP.To4() != nil && ones < 32
}

func parseHexIP(text string) string {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != net.IPv6len {
		return ""
	}
	return net.IP(raw).String()
}
