package local

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// dnsName is an RFC 1123 subdomain with at least two labels, in any case.
var dnsName = regexp.MustCompile(`(?i)^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+$`)

// maxName is that of DNS.
const maxName = 253

// check returns what to forward for an endpoint. It refuses everything else than one DNS
// name, a port, and addresses of other hosts: the name becomes a line of /etc/hosts.
func check(endpoint protocol.Endpoint, isHost func(netip.Addr) bool) (forwarder.Config, error) {
	name, backends := endpoint.Host, endpoint.Local.Backends
	_, err := netip.ParseAddr(name)
	switch {
	case err == nil, len(name) > maxName, !dnsName.MatchString(name), strings.HasSuffix(strings.ToLower(name), ".localhost"):
		return forwarder.Config{}, fmt.Errorf("not serving the endpoint: %q is no DNS name", name)
	case endpoint.Port < 1 || endpoint.Port > 65535:
		return forwarder.Config{}, fmt.Errorf("not serving the endpoint: %d is no port", endpoint.Port)
	case len(backends) > protocol.MaxBackends:
		return forwarder.Config{}, fmt.Errorf("not serving the endpoint: there are more than %d API servers", protocol.MaxBackends)
	}
	config := forwarder.Config{Host: name, Port: endpoint.Port}
	for _, text := range backends {
		backend, err := netip.ParseAddrPort(text)
		address := backend.Addr().Unmap()
		if err != nil || backend.Port() == 0 || address.Zone() != "" || !isHost(address) {
			return forwarder.Config{}, fmt.Errorf("not serving the endpoint: %q is no address of an API server", text)
		}
		config.Backends = append(config.Backends, netip.AddrPortFrom(address, backend.Port()).String())
	}
	return config, nil
}
