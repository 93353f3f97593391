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

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
)

// Name is the table's family and name.
const Name = "inet elemental_endpoint"

// timeout is the time limit of an nft command.
const timeout = 30 * time.Second

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

// Delete deletes the table if it exists. A host without nft has none.
func (t Table) Delete(ctx context.Context) error {
	_, err := t.run(ctx, "table "+Name+"\ndelete table "+Name+"\n", "nft", "-f", "-")
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("ending the refusal of a former endpoint: %w", err)
	}
	return nil
}

// Exists reports whether the table exists. It returns false if nft fails or is
// not installed.
func (t Table) Exists(ctx context.Context) bool {
	_, err := t.run(ctx, "", "nft", "list", "table", "inet", "elemental_endpoint")
	return err == nil
}

func (t Table) run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.Commands.Run(ctx, stdin, args...)
}

// Script returns an nft script that replaces the table in one transaction: it
// creates the table if it does not exist, deletes it, and creates it again. mark
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
	family := "ip"
	if address.Is6() {
		family = "ip6"
	}
	var sources []string
	for _, source := range local {
		if source = source.Unmap().WithZone(""); source.Is6() == address.Is6() {
			sources = append(sources, source.String())
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
