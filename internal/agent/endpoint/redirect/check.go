package redirect

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Target is what may be redirected, and where to.
type Target struct {
	// Endpoint is the control plane endpoint, at an address of this host.
	Endpoint netip.AddrPort
	// Servers are API servers of other hosts, of the endpoint's family.
	Servers []netip.AddrPort
}

// Parse returns what a plan wants to be redirected. It refuses an endpoint that is no address
// of this host, and everything else than IP addresses of other hosts with a port. Servers of
// another family are left out, because no rule can lead to them.
func Parse(want protocol.Redirect, local []netip.Addr) (Target, error) {
	endpoint, err := parse(want.Endpoint)
	if err != nil {
		return Target{}, err
	}
	if !slices.Contains(local, endpoint.Addr()) {
		return Target{}, fmt.Errorf("%s is no address of this host", endpoint.Addr())
	}
	if len(want.Servers) > protocol.MaxBackends {
		return Target{}, fmt.Errorf("there are more than %d API servers", protocol.MaxBackends)
	}
	target := Target{Endpoint: endpoint}
	for _, text := range want.Servers {
		server, err := parse(text)
		if err != nil {
			return Target{}, err
		}
		if slices.Contains(local, server.Addr()) {
			return Target{}, fmt.Errorf("%s is an address of this host", server.Addr())
		}
		if server.Addr().Is6() == endpoint.Addr().Is6() {
			target.Servers = append(target.Servers, server)
		}
	}
	if len(target.Servers) == 0 {
		return Target{}, fmt.Errorf("no other host of the control plane is known that could take the connections")
	}
	return target, nil
}

// parse reads an address that another host can connect to.
func parse(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	address := at.Addr().Unmap()
	if err != nil || at.Port() == 0 || address.Zone() != "" || !address.IsGlobalUnicast() {
		return netip.AddrPort{}, fmt.Errorf("%.128q is no address of an API server", text)
	}
	return netip.AddrPortFrom(address, at.Port()), nil
}

// CheckForwarding returns an error unless the kernel passes packets of the address's family
// on. root replaces "/".
func CheckForwarding(root string, address netip.Addr) error {
	path := "/proc/sys/net/ipv4/ip_forward"
	if address.Is6() {
		path = "/proc/sys/net/ipv6/conf/all/forwarding"
	}
	value, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return fmt.Errorf("looking whether the kernel passes packets on: %w", err)
	}
	if strings.TrimSpace(string(value)) == "0" {
		return fmt.Errorf("the kernel passes no packets on: %s is 0", path)
	}
	return nil
}
