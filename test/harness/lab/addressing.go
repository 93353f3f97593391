package lab

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/podnetwork"
)

// PodSubnet holds the pods of all hosts. A cluster in the lab uses it as its pod network.
const PodSubnet = "10.244.0.0/16"

// address returns the n-th address of a network: 1 is the gateway, 10 the management cluster, 11
// the first host.
func address(subnet string, n int) string {
	found := netip.MustParsePrefix(subnet).Masked().Addr()
	for range n {
		found = found.Next()
	}
	return found.String()
}

// hostAddress returns the address of a host: 0 is the management cluster, 1 the first host,
// maxHosts + 1 to + 3 the second management cluster, the empty one and that of another build.
func hostAddress(subnet string, number int) string { return address(subnet, 10+number) }

// FreeAddress returns an address of the lab's network that no host has, by its number from 0 on.
func (l *Lab) FreeAddress(number int) string { return address(l.options.Subnet, 20+maxHosts+number) }

// podSubnet returns the network of the pods of a host.
func podSubnet(number int) string { return fmt.Sprintf("10.244.%d.0/24", number) }

// networkFiles returns the files of a host's pod network: a bridge for its own pods, and routes to
// the pods of all other hosts. They belong to the host image, so a reset does not remove them.
func networkFiles(subnet string, number int) []engine.File {
	peers := map[int]string{}
	for other := range maxHosts + 4 {
		if other != number {
			peers[other] = hostAddress(subnet, other)
		}
	}
	return podNetworkFiles(number, address(subnet, 1), address(subnet, 1), peers)
}

// podNetworkFile configures the network plugin of a host.
const podNetworkFile = podnetwork.ConfigFolder + "/10-lab.conflist"

// podNetworkFiles is networkFiles for a host with another default gateway and name server. peers
// has the addresses of the other hosts by their numbers.
func podNetworkFiles(number int, gateway, nameserver string, peers map[int]string) []engine.File {
	return append(uplinkFiles(gateway, nameserver, peers), engine.File{
		Path: podNetworkFile, Mode: 0o644, Content: podnetwork.Config(podSubnet(number)),
	})
}

// uplinkFiles are the files of a host that tell its default gateway, its name server, and how the
// pods of peers are reached.
func uplinkFiles(gateway, nameserver string, peers map[int]string) []engine.File {
	var routes strings.Builder
	fmt.Fprintf(&routes, "route replace default via %s\n", gateway)
	for _, peer := range slices.Sorted(maps.Keys(peers)) {
		fmt.Fprintf(&routes, "route replace %s via %s\n", podSubnet(peer), peers[peer])
	}
	return []engine.File{
		{Path: "/etc/lab/routes", Mode: 0o644, Content: []byte(routes.String())},
		{Path: "/etc/lab/resolv.conf", Mode: 0o644, Content: fmt.Appendf(nil, "nameserver %s\n", nameserver)},
	}
}
