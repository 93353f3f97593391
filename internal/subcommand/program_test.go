package subcommand_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

const (
	usage = `ship carries things.

Usage:
  ship COMMAND [flags]

Commands:
  load    Take things on board
  unload  Take them off

"ship COMMAND --help" says more about a command.
`
	help = `Take things on board

Loads the ship.

Usage:
  ship load THING [flags]

Flags:
      --fast   hurry
`
)

func ship() subcommand.Program {
	return subcommand.Program{Name: "ship", Summary: "ship carries things.", Commands: []subcommand.Command{
		{
			Name: "load", Arguments: "THING", Summary: "Take things on board", Details: "Loads the ship.",
			SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
				fast := flags.Bool("fast", false, "hurry")
				return func(_ context.Context, s subcommand.Streams, args []string) error {
					if len(args) == 0 {
						return fmt.Errorf("loading: %w", subcommand.Usage(errors.New("name a thing")))
					}
					_, err := fmt.Fprint(s.Out, args, *fast)
					return err
				}
			},
		},
		{Name: "unload", Summary: "Take them off", SetUp: failing},
		{Name: "sink", Summary: "For no one", SetUp: failing, Hidden: true},
	}}
}

func failing(*pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
	return func(context.Context, subcommand.Streams, []string) error { return errors.New("it leaks") }
}

func TestRun(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		status    int
		out, errs string
	}{
		"":                    {status: subcommand.ExitUsage, errs: usage},
		"--help":              {out: usage},
		"help":                {out: usage},
		"load --help":         {out: help},
		"load gold --fast":    {out: "[gold] true"},
		"load":                {status: subcommand.ExitUsage, errs: "ship: loading: name a thing\n"},
		"load gold --slow":    {status: subcommand.ExitUsage, errs: "ship: unknown flag: --slow; see ship load --help\n"},
		"unload":              {status: subcommand.ExitFailure, errs: "ship: it leaks\n"},
		"sink":                {status: subcommand.ExitFailure, errs: "ship: it leaks\n"},
		"sail":                {status: subcommand.ExitUsage, errs: "ship: there is no command \"sail\"; see ship --help\n"},
		"load -- --fast gold": {out: "[--fast gold] false"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			status := ship().Run(t.Context(), strings.Fields(line), &out, &errs)
			if status != want.status || out.String() != want.out || errs.String() != want.errs {
				t.Errorf("status %d\n%s\n%s", status, out.String(), errs.String())
			}
		})
	}
}
