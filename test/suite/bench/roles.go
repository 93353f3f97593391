package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/nodes"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/sites"
)

// Roles are the values of Play's first argument.
const (
	roleBare  = "bare-server"
	roleHosts = "hosts"
	roleNodes = "nodes"
	roleSites = "sites"
)

// Play runs a role in a process of its own: a measured server, or hosts, whose bootstraps may set up API servers, or whose nodes can be upgraded. Options.Self with further arguments starts the
// process. Play returns when ctx or, for hosts, standard input ends.
func Play(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == roleBare:
		return serveBare(ctx, args[1:])
	case len(args) > 0 && args[0] == roleHosts:
		return remote.Serve(ctx, os.Stdin, os.Stdout, slog.New(slog.DiscardHandler), nil)
	case len(args) > 0 && args[0] == roleNodes:
		return nodes.Serve(ctx, namespace)
	case len(args) > 0 && args[0] == roleSites:
		return sites.Serve(ctx)
	default:
		return fmt.Errorf("there is no role %q", args)
	}
}

// role returns the command line of a role.
func (o Options) role(args ...string) []string { return slices.Concat(o.Self, args) }
