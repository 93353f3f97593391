package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/fleet/remote"
)

// Roles are what Play's first argument may be.
const (
	roleBare  = "bare-server"
	roleHosts = "hosts"
)

// Play has this process be something that is measured, or that measures, from outside: Options.Self runs it, and arguments
// follow. It returns when ctx or, for hosts, standard input ends.
func Play(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == roleBare:
		return serveBare(ctx, args[1:])
	case len(args) > 0 && args[0] == roleHosts:
		return remote.Serve(ctx, os.Stdin, os.Stdout, slog.New(slog.DiscardHandler))
	default:
		return fmt.Errorf("there is no role %q", args)
	}
}

// role is the command line that plays a role.
func (o Options) role(args ...string) []string { return slices.Concat(o.Self, args) }
