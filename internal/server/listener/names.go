package listener

import (
	"cmp"
	"net/netip"
	"slices"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

const (
	// maxIPs bounds the addresses of registrations in one certificate.
	maxIPs = 64
	// maxNames bounds the names and addresses of one namespace, and so the certificates
	// that its registrations can cause.
	maxNames = 256
)

// names are the names and addresses that certificates are issued for.
type names struct {
	// own are the manager's: the host of its URL and the DNS name of its Service.
	own []string
	// dns are the DNS names of registrations, addresses their IP addresses.
	dns       map[string]bool
	addresses map[netip.Addr]bool
	// shared are the addresses in the certificate of callers without a server name.
	shared []netip.Addr
	// ignored counts the names and addresses beyond maxNames of their namespace.
	ignored int
}

// publishedNames returns the names that registrations publish. Those of the oldest
// registrations of a namespace count if it has too many, and all namespaces get an equal
// part of the shared addresses: no namespace displaces the names of another.
func publishedNames(own []string, registrations []infrav1.ElementalRegistration) *names {
	n := &names{own: own, dns: map[string]bool{}, addresses: map[netip.Addr]bool{}}
	registrations = slices.Clone(registrations)
	slices.SortFunc(registrations, func(a, b infrav1.ElementalRegistration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var namespaces []string
	published := map[string]map[string]bool{}
	addresses := map[string][]netip.Addr{}
	for i := range registrations {
		namespace := registrations[i].Namespace
		name := enrolment.ServerHost(enrolment.ServerURL(&registrations[i], ""))
		address, isAddress := parseAddress(name)
		if isAddress {
			name = address.String() // an address has several spellings
		}
		if name == "" || published[namespace][name] {
			continue
		}
		if published[namespace] == nil {
			published[namespace] = map[string]bool{}
			namespaces = append(namespaces, namespace)
		}
		if len(published[namespace]) == maxNames {
			n.ignored++
			continue
		}
		published[namespace][name] = true
		if isAddress {
			n.addresses[address] = true
			addresses[namespace] = append(addresses[namespace], address)
		} else {
			n.dns[name] = true
		}
	}
	n.shared = takeTurns(namespaces, addresses, maxIPs)
	return n
}

// takeTurns returns up to limit addresses. The namespaces give one address each, again
// and again.
func takeTurns(namespaces []string, addresses map[string][]netip.Addr, limit int) []netip.Addr {
	var taken []netip.Addr
	for turn, more := 0, true; more; turn++ {
		more = false
		for _, namespace := range namespaces {
			if turn >= len(addresses[namespace]) {
				continue
			}
			more = true
			if len(taken) == limit {
				return taken
			}
			if address := addresses[namespace][turn]; !slices.Contains(taken, address) {
				taken = append(taken, address)
			}
		}
	}
	return taken
}

// certificate returns the key of a caller's certificate and the names in it. A caller
// whose server name is published gets a certificate for this name alone. Clients send no
// server name for an IP address: they get the manager's own names, the address that they
// connected to if it is known here and published, and the shared addresses.
func (n *names) certificate(serverName string, local netip.Addr) (key string, in []string) {
	if serverName != "" && (n.dns[serverName] || slices.Contains(n.own, serverName)) {
		return serverName, []string{serverName}
	}
	in = slices.Clone(n.own)
	shared := n.shared
	if n.addresses[local] && !slices.Contains(shared, local) {
		key, shared = local.String(), append([]netip.Addr{local}, shared[:min(len(shared), maxIPs-1)]...)
	}
	for _, address := range shared {
		if name := address.String(); !slices.Contains(n.own, name) {
			in = append(in, name)
		}
	}
	return key, in
}

// leftOut returns how many names and addresses are in no certificate, or only in that of
// callers who connect to the address itself.
func (n *names) leftOut() int { return n.ignored + len(n.addresses) - len(n.shared) }

// parseAddress parses an IP address. An IPv4 address that is written as IPv6 is the same
// address.
func parseAddress(name string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(name)
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, false
	}
	return address.Unmap(), true
}
