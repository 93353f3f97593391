package address

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// ByRule returns the first address of the host that fits the rule. Hosts report their
// addresses in order, those of the default route's interface first. If none fits, the
// address is blank and why describes the missing address; hosts that lack the same
// address have the same text.
func ByRule(host *infrav1.ElementalHost, rule infrav1.HostAddressRule) (address, why string) {
	kind := rule.Type
	if kind == "" {
		kind = infrav1.HostAddressType(clusterv1.MachineInternalIP)
	}
	for _, a := range host.Status.Addresses {
		if string(a.Type) != string(kind) {
			continue
		}
		if kind == infrav1.HostAddressType(clusterv1.MachineHostName) {
			if isName(a.Address) {
				return a.Address, ""
			}
			continue
		}
		// Hosts are not trusted to report valid addresses.
		ip, err := netip.ParseAddr(a.Address)
		if err == nil && IsUsable(ip) && fits(host, rule, ip.Unmap()) {
			return ip.Unmap().String(), ""
		}
	}
	return "", describeMissing(kind, rule)
}

// isName reports whether a host's name is a valid DNS name (RFC 1123).
func isName(name string) bool {
	const maxLength = 253
	if len(name) > maxLength {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		valid := strings.IndexFunc(label, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-'
		}) < 0
		if label == "" || !valid || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// IsUsable reports whether other hosts can reach an API server at the address.
func IsUsable(ip netip.Addr) bool {
	return ip.Zone() == "" && (!ip.IsLoopback() || loopback) && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast()
}

func fits(host *infrav1.ElementalHost, rule infrav1.HostAddressRule, ip netip.Addr) bool {
	if rule.Family != "" && ip.Is4() != (rule.Family == infrav1.IPv4) {
		return false
	}
	if rule.CIDR != "" {
		network, err := netip.ParsePrefix(rule.CIDR)
		if err != nil || !network.Contains(ip) {
			return false
		}
	}
	return rule.Interface == "" || slices.Contains(onInterface(host, rule.Interface), ip)
}

// onInterface returns the addresses of a network interface, from the inventory.
func onInterface(host *infrav1.ElementalHost, name string) []netip.Addr {
	if host.Status.Inventory == nil {
		return nil
	}
	var ips []netip.Addr
	for _, nic := range host.Status.Inventory.NICs {
		if nic.Name != name {
			continue
		}
		for _, a := range nic.Addresses {
			if prefix, err := netip.ParsePrefix(a); err == nil {
				ips = append(ips, prefix.Addr().Unmap())
			}
		}
	}
	return ips
}

// describeMissing describes the address that a host lacks.
func describeMissing(kind infrav1.HostAddressType, rule infrav1.HostAddressRule) string {
	parts := []string{"without a known " + string(kind)}
	if rule.Family != "" {
		parts = append(parts, "of family "+string(rule.Family))
	}
	if rule.CIDR != "" {
		parts = append(parts, "in "+rule.CIDR)
	}
	if rule.Interface != "" {
		parts = append(parts, "on interface "+rule.Interface)
	}
	return strings.Join(parts, " ")
}

// Has reports whether the host has the address, of any type. known is false if the
// host has not reported any addresses.
func Has(host *infrav1.ElementalHost, address string) (has, known bool) {
	for _, a := range host.Status.Addresses {
		known = true
		if Same(a.Address, address) {
			return true, true
		}
	}
	return false, known
}

// Covers reports whether a serving certificate with those names is valid for the
// address. A wildcard stands for one label (RFC 6125).
func Covers(names []string, address string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if Same(name, address) {
			return true
		}
		domain, wildcard := strings.CutPrefix(name, "*.")
		_, parent, dotted := strings.Cut(address, ".")
		if _, err := netip.ParseAddr(address); err == nil {
			return false
		}
		return wildcard && dotted && strings.EqualFold(domain, parent)
	})
}

// Same reports whether two IP addresses or DNS names are the same. The notation of IP
// addresses, upper and lower case, and a trailing dot make no difference.
func Same(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	if err1 == nil && err2 == nil {
		return x.Unmap() == y.Unmap()
	}
	return a != "" && strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// ForEndpoint returns the address of the host that the cluster's policy selects as
// endpoint. If none exists, why describes the missing address and names the field of
// the policy.
func ForEndpoint(host *infrav1.ElementalHost, policy infrav1.ControlPlaneEndpointPolicy) (address, why string) {
	rule := infrav1.HostAddressRule{}
	if policy.Host != nil {
		rule = policy.Host.Address
	}
	address, why = ByRule(host, rule)
	if why != "" && rule != (infrav1.HostAddressRule{}) {
		why = fmt.Sprintf("%s (controlPlaneEndpointPolicy.host.address)", why)
	}
	return address, why
}
