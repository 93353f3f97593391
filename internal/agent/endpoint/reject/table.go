package reject

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
)

// Name is the table's family and name.
const Name = "inet elemental_endpoint"

// timeout bounds a call of nft.
const timeout = 30 * time.Second

// Table is the table in the kernel.
type Table struct {
	Commands host.Commander
}

// Set has connections to the former endpoint, host:port, refused unless they
// come from one of the host's own addresses. It does nothing if that is so
// already.
func (t Table) Set(ctx context.Context, former string, own []netip.Addr) error {
	script, mark, err := Script(former, own)
	if err != nil {
		return err
	}
	if listed, err := t.run(ctx, "", "nft", "list", "table", "inet", "elemental_endpoint"); err == nil && strings.Contains(listed, mark) {
		return nil
	}
	_, err = t.run(ctx, script, "nft", "-f", "-")
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("refusing connections to the former endpoint %s takes nft: install nftables", former)
	}
	if err != nil {
		return fmt.Errorf("refusing connections to the former endpoint %s: %w", former, err)
	}
	return nil
}

// Delete deletes the table, which may be missing, as it is on a host without
// nft.
func (t Table) Delete(ctx context.Context) error {
	_, err := t.run(ctx, "table "+Name+"\ndelete table "+Name+"\n", "nft", "-f", "-")
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("ending the refusal of a former endpoint: %w", err)
	}
	return nil
}

// Exists reports whether there is the table, as far as nft is there to tell.
func (t Table) Exists(ctx context.Context) bool {
	_, err := t.run(ctx, "", "nft", "list", "table", "inet", "elemental_endpoint")
	return err == nil
}

func (t Table) run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.Commands.Run(ctx, stdin, args...)
}

// Script is what nft is told, as one transaction: the table is made in case
// there is none, deleted, and made anew. mark is in a comment of the rule, by
// which a table is known to be this one.
//
// There is no look at the state of a connection: those that are established
// are refused, too. Other tables can't undo it, since a packet has to be
// accepted by all chains of the hook.
func Script(former string, own []netip.Addr) (script, mark string, err error) {
	target, err := netip.ParseAddrPort(former)
	if err != nil || target.Addr().Zone() != "" || target.Port() == 0 {
		return "", "", fmt.Errorf("refusing connections to the former endpoint %q: only an IP address with a port can be refused", former)
	}
	address := target.Addr().Unmap()
	family := "ip"
	if address.Is6() {
		family = "ip6"
	}
	var sources []string
	for _, one := range own {
		if one = one.Unmap().WithZone(""); one.Is6() == address.Is6() {
			sources = append(sources, one.String())
		}
	}
	slices.Sort(sources)
	sources = slices.Compact(sources)
	sum := sha256.Sum256([]byte(strings.Join(append([]string{target.String()}, sources...), " ")))
	mark = "elemental " + hex.EncodeToString(sum[:8])
	var b strings.Builder
	fmt.Fprintf(&b, "table %s\ndelete table %s\ntable %s {\n", Name, Name, Name)
	b.WriteString("\tchain input {\n\t\ttype filter hook input priority -10; policy accept;\n\t\tiif \"lo\" accept\n")
	if len(sources) > 0 {
		fmt.Fprintf(&b, "\t\t%s saddr { %s } accept\n", family, strings.Join(sources, ", "))
	}
	fmt.Fprintf(&b, "\t\t%s daddr %s tcp dport %d reject with tcp reset comment %q\n\t}\n}\n", family, address, target.Port(), mark)
	return b.String(), mark, nil
}
