package nftable

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

// timeout is the time limit of an nft command.
const timeout = 30 * time.Second

// Table is a table in the kernel.
type Table struct {
	// Name is the table's family and name.
	Name     string
	Commands oscommand.Runner
}

// Set runs a script that replaces the table. It changes nothing if the table contains mark,
// which a comment of the script has.
func (t Table) Set(ctx context.Context, script, mark string) error {
	if listed, err := t.List(ctx); err == nil && strings.Contains(listed, mark) {
		return nil
	}
	_, err := t.run(ctx, script, "nft", "-f", "-")
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("this takes nft: install nftables: %w", err)
	}
	return err
}

// Delete deletes the table if it exists. A host without nft has none.
func (t Table) Delete(ctx context.Context) error {
	_, err := t.run(ctx, "table "+t.Name+"\ndelete table "+t.Name+"\n", "nft", "-f", "-")
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	return err
}

// Exists reports whether the table exists. It returns false if nft fails or is not
// installed.
func (t Table) Exists(ctx context.Context) bool {
	_, err := t.List(ctx)
	return err == nil
}

// List returns the table as nft prints it. It returns an error if the table does not exist.
func (t Table) List(ctx context.Context) (string, error) {
	return t.run(ctx, "", slices.Concat([]string{"nft", "list", "table"}, strings.Fields(t.Name))...)
}

func (t Table) run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.Commands.Run(ctx, stdin, args...)
}

// Script returns an nft script that replaces a table in one transaction: it creates the
// table if it does not exist, deletes it, and creates it again with chains.
func Script(name, chains string) string {
	return fmt.Sprintf("table %s\ndelete table %s\ntable %s {\n%s}\n", name, name, name, chains)
}

// Mark returns a text for a comment that identifies these words.
func Mark(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	return "elemental " + hex.EncodeToString(sum[:8])
}

// Family returns what nft calls the family of an address.
func Family(address netip.Addr) string {
	if address.Is6() {
		return "ip6"
	}
	return "ip"
}

// Sources returns the local addresses that have the family of address, sorted, without
// zones.
func Sources(address netip.Addr, local []netip.Addr) []string {
	var sources []string
	for _, source := range local {
		if source = source.Unmap().WithZone(""); source.Is6() == address.Is6() {
			sources = append(sources, source.String())
		}
	}
	slices.Sort(sources)
	return slices.Compact(sources)
}

// AcceptLocal returns the rules of a chain that accept what the host itself has sent: over
// loopback, or from one of the sources.
func AcceptLocal(family string, sources []string) string {
	rules := "\t\tiif \"lo\" accept\n"
	if len(sources) > 0 {
		rules += fmt.Sprintf("\t\t%s saddr { %s } accept\n", family, strings.Join(sources, ", "))
	}
	return rules
}
