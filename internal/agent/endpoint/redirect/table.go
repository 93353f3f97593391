package redirect

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/nftable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
)

// Name is the table's family and name.
const Name = "inet elemental_redirect"

// Table is the nftables table in the kernel.
type Table struct {
	Commands oscommand.Runner
}

// Set has the table do what the rules say. It changes nothing if the table already does that.
func (t Table) Set(ctx context.Context, rules Rules) error {
	script, mark := rules.Script()
	if err := t.table().Set(ctx, script, mark); err != nil {
		return fmt.Errorf("redirecting the endpoint %s: %w", rules.Endpoint, err)
	}
	return nil
}

// Delete deletes the table if it exists. A host without nft has none.
func (t Table) Delete(ctx context.Context) error {
	if err := t.table().Delete(ctx); err != nil {
		return fmt.Errorf("ending the redirection of the endpoint: %w", err)
	}
	return nil
}

// Exists reports whether the table exists. It returns false if nft fails or is not
// installed.
func (t Table) Exists(ctx context.Context) bool { return t.table().Exists(ctx) }

// IsBlocked reports whether connections have been redirected, and none of them has left the
// host: something drops what the host passes on, such as a packet filter that accepts nothing
// unless told, or a bridge that has the endpoint's address.
func (t Table) IsBlocked(ctx context.Context) bool {
	listed, err := t.table().List(ctx)
	return err == nil && counted(listed, "dnat") >= minBlocked && counted(listed, "masquerade") == 0
}

// minBlocked is how many packets that opened a connection must have been dropped: a single one
// may be on its way.
const minBlocked = 2

// counter is the counter of a rule that translates, with its statement.
var counter = regexp.MustCompile(`counter packets ([0-9]+) bytes [0-9]+ (dnat|masquerade)`)

// counted returns how many packets a statement has translated that opened a connection.
func counted(listed, statement string) int {
	for _, match := range counter.FindAllStringSubmatch(listed, -1) {
		if match[2] == statement {
			n, _ := strconv.Atoi(match[1]) // digits only; more than fit in are many
			return n
		}
	}
	return 0
}

func (t Table) table() nftable.Table { return nftable.Table{Name: Name, Commands: t.Commands} }
