package redirect

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/nftable"
)

// Rules are what the table does.
type Rules struct {
	// Endpoint is the control plane endpoint, at an address of this host.
	Endpoint netip.AddrPort
	// Local are the addresses of this host.
	Local []netip.Addr
	// Server is the API server that connections to the endpoint are redirected to. The zero
	// value redirects none, and cuts those that have been redirected.
	Server netip.AddrPort
}

// The chains come before those of kube-proxy and of iptables, because the first translation of
// a connection wins.
const (
	preroutingPriority  = -110
	filterPriority      = -10
	postroutingPriority = 90
)

// notReset matches all packets of TCP but resets: these have to reach the other end, so that
// it gives up a connection that has been cut.
const notReset = "tcp flags & rst == 0"

// Script returns an nft script that replaces the table in one transaction. mark identifies
// the rules; a comment contains it.
//
// Connections to the host's own API server that were open before are reset, so that clients
// connect anew and are redirected. A connection that was redirected to another server, or to
// any if none is left, is reset too, as soon as its client sends or acknowledges
// something. The chains that translate stay for that, without rules: if there were none in the
// kernel, it would stop translating, and a client that only listens would not notice.
//
// The counters show whether connections get through; see Table.IsBlocked.
func (r Rules) Script() (script, mark string) {
	family, sources := nftable.Family(r.Endpoint.Addr()), nftable.Sources(r.Endpoint.Addr(), r.Local)
	mark = nftable.Mark(append([]string{r.Endpoint.String(), r.Server.String()}, sources...)...)
	redirected := fmt.Sprintf("meta l4proto tcp ct status dnat ct original %s daddr %s ct original proto-dst %d", family, r.Endpoint.Addr(), r.Endpoint.Port())
	forward := func(elsewhere string) string {
		return chain("forward", "filter hook forward", filterPriority,
			fmt.Sprintf("\t\t%s ct direction original %s%s reject with tcp reset comment %q\n", redirected, elsewhere, notReset, mark))
	}
	prerouting := func(rules string) string {
		return chain("prerouting", "nat hook prerouting", preroutingPriority, rules)
	}
	postrouting := func(rules string) string {
		return chain("postrouting", "nat hook postrouting", postroutingPriority, rules)
	}
	if !r.Server.IsValid() {
		return nftable.Script(Name, prerouting("")+forward("")+postrouting("")), mark
	}
	local := nftable.AcceptLocal(family, sources)
	toEndpoint := fmt.Sprintf("\t\t%s daddr %s tcp dport %d", family, r.Endpoint.Addr(), r.Endpoint.Port())
	return nftable.Script(Name, strings.Join([]string{
		prerouting(fmt.Sprintf("%s%s counter dnat %s to %s\n", local, toEndpoint, family, r.Server)),
		chain("input", "filter hook input", filterPriority,
			fmt.Sprintf("%s\t\tct status dnat accept\n%s %s reject with tcp reset\n", local, toEndpoint, notReset)),
		forward(fmt.Sprintf("%s daddr != %s ", family, r.Server.Addr())),
		postrouting("\t\t" + redirected + " counter masquerade\n"),
	}, "")), mark
}

func chain(name, hook string, priority int, rules string) string {
	return fmt.Sprintf("\tchain %s {\n\t\ttype %s priority %d; policy accept;\n%s\t}\n", name, hook, priority, rules)
}
