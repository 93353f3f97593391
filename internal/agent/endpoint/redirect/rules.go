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
// Only packets that open a connection are translated, because the kernel may track a
// connection from its middle on. Connections to the host's own API server that were open
// before are reset, so that clients connect anew and are redirected. A connection that was
// redirected to another server, or to any if there is none now, is reset too, as soon as its
// client sends or acknowledges something.
//
// The counters show whether connections get through; see Table.IsBlocked. The chains for
// translation stay without rules if nothing is redirected: without any such
// chain the kernel would no longer translate the connections that are to be cut.
func (r Rules) Script() (script, mark string) {
	family, sources := nftable.Family(r.Endpoint.Addr()), nftable.Sources(r.Endpoint.Addr(), r.Local)
	mark = nftable.Mark(append([]string{r.Endpoint.String(), r.Server.String()}, sources...)...)
	address, port := r.Endpoint.Addr(), r.Endpoint.Port()
	local := nftable.AcceptLocal(family, sources)
	redirected := fmt.Sprintf("meta l4proto tcp ct status dnat ct original %s daddr %s ct original proto-dst %d", family, address, port)
	var elsewhere, translated, input, masqueraded string
	if r.Server.IsValid() {
		elsewhere = fmt.Sprintf("%s daddr != %s ", family, r.Server.Addr())
		translated = fmt.Sprintf("%s\t\t%s daddr %s tcp dport %d tcp flags & (fin | syn | rst | ack) == syn counter dnat %s to %s\n",
			local, family, address, port, family, r.Server)
		input = chain("input", fmt.Sprintf("type filter hook input priority %d", filterPriority),
			fmt.Sprintf("%s\t\tct status dnat accept\n\t\t%s daddr %s tcp dport %d %s reject with tcp reset\n", local, family, address, port, notReset))
		masqueraded = "\t\t" + redirected + " counter masquerade\n"
	}
	return nftable.Script(Name, strings.Join([]string{
		chain("prerouting", fmt.Sprintf("type nat hook prerouting priority %d", preroutingPriority), translated),
		input,
		chain("forward", fmt.Sprintf("type filter hook forward priority %d", filterPriority),
			fmt.Sprintf("\t\t%s ct direction original %s%s reject with tcp reset comment %q\n", redirected, elsewhere, notReset, mark)),
		chain("postrouting", fmt.Sprintf("type nat hook postrouting priority %d", postroutingPriority), masqueraded),
	}, "")), mark
}

func chain(name, hook, rules string) string {
	return fmt.Sprintf("\tchain %s {\n\t\t%s; policy accept;\n%s\t}\n", name, hook, rules)
}
