package linux

import (
	"encoding/hex"
	"net"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
)

// systemInterfaces lists this machine's interfaces without loopback.
func systemInterfaces() ([]platform.NetworkInterface, error) {
	found, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	list := make([]platform.NetworkInterface, 0, len(found))
	for _, nic := range found {
		if nic.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := nic.Addrs()
		if err != nil {
			continue // the interface was deleted in between, as those of Pods often are
		}
		listed := platform.NetworkInterface{Name: nic.Name, MAC: nic.HardwareAddr.String(), Up: nic.Flags&net.FlagUp != 0}
		for _, address := range addresses {
			if ip, ok := address.(*net.IPNet); ok {
				listed.Addresses = append(listed.Addresses, ip)
			}
		}
		list = append(list, listed)
	}
	return list, nil
}

// podInterfaces are the names that CNI plugins and kube-proxy give. A trailing
// "*" matches any suffix.
func podInterfaces() []string {
	return []string{
		"cni0", "cni-podman*", "flannel*", "cali*", "vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali",
		"cilium_*", "lxc*", "kube-ipvs0", "kube-bridge", "kube-dummy-if", "nodelocaldns", "weave", "vethwe*", "datapath",
		"antrea-*", "ovn-k8s-*", "genev_sys_*",
	}
}

// isPodInterface also matches names that other programs give, which are
// therefore not leftovers.
func isPodInterface(name string) bool {
	return isCNIInterface(name) || matches(name, "veth*") || matches(name, "docker*") || matches(name, "br-*") || matches(name, "virbr*")
}

func isCNIInterface(name string) bool {
	for _, pattern := range podInterfaces() {
		if matches(name, pattern) {
			return true
		}
	}
	return false
}

func matches(name, pattern string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
}

// isIPv4InSubnet reports whether an address is IPv4 and its network has more
// than this one address.
func isIPv4InSubnet(address *net.IPNet) bool {
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
