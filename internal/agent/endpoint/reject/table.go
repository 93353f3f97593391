package reject

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/nftable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
)

// Name is the table's family and name.
const Name = "inet elemental_endpoint"

// Table is the nftables table in the kernel.
type Table struct {
	Commands oscommand.Runner
}

// Set rejects connections to a former endpoint, host:port, unless they come from
// one of the host's local addresses. It changes nothing if the table already
// does that.
func (t Table) Set(ctx context.Context, former string, local []netip.Addr) error {
	script, mark, err := Script(former, local)
	if err != nil {
		return err
	}
	if err := t.table().Set(ctx, script, mark); err != nil {
		return fmt.Errorf("refusing connections to the former endpoint %s: %w", former, err)
	}
	return nil
}

// Delete deletes the table if it exists. A host without nft has none.
func (t Table) Delete(ctx context.Context) error {
	if err := t.table().Delete(ctx); err != nil {
		return fmt.Errorf("ending the refusal of a former endpoint: %w", err)
	}
	return nil
}

// Exists reports whether the table exists. It returns false if nft fails or is
// not installed.
func (t Table) Exists(ctx context.Context) bool { return t.table().Exists(ctx) }

func (t Table) table() nftable.Table { return nftable.Table{Name: Name, Commands: t.Commands} }

// Script returns an nft script that replaces the table in one transaction. mark
// identifies the former endpoint and the local addresses; a comment of the rule
// contains it.
//
// The rule does not match the state of a connection, so that it also rejects
// packets of established connections. Other tables cannot override it, because
// all chains of a hook must accept a packet.
func Script(former string, local []netip.Addr) (script, mark string, err error) {
	target, err := netip.ParseAddrPort(former)
	if err != nil || target.Addr().Zone() != "" || target.Port() == 0 {
		return "", "", fmt.Errorf("refusing connections to the former endpoint %q: only an IP address with a port can be refused", former)
	}
	address := target.Addr().Unmap()
	family, sources := nftable.Family(address), nftable.Sources(address, local)
	mark = nftable.Mark(append([]string{target.String()}, sources...)...)
	chain := fmt.Sprintf("\tchain input {\n\t\ttype filter hook input priority -10; policy accept;\n%s\t\t%s daddr %s tcp dport %d reject with tcp reset comment %q\n\t}\n",
		nftable.AcceptLocal(family, sources), family, address, target.Port(), mark)
	return nftable.Script(Name, chain), mark, nil
}
