package main

import (
	"context"
	_ "embed" // for the unit
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// defaultProgram is the path of the program in the unit.
const defaultProgram = "/usr/local/bin/elemental-agent"

//go:embed elemental-agent.service
var systemdUnit string

func unitCommand() subcommand.Command {
	return subcommand.Command{
		Name: "unit", Summary: "Print the systemd unit that runs this program",
		Details: "Prints the unit for /etc/systemd/system/elemental-agent.service. The script that installs the agent\n" +
			"uses it, so that program and unit are of the same version.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			program := flags.String("program", defaultProgram, "where the program is installed")
			return func(_ context.Context, s subcommand.Streams, args []string) error {
				if err := noArguments(args); err != nil {
					return err
				}
				if !filepath.IsAbs(*program) || strings.ContainsAny(*program, " \t\n\"'\\%$;") {
					return subcommand.Usage(errors.New("--program must be an absolute path without spaces and characters that systemd acts on"))
				}
				_, err := fmt.Fprint(s.Out, strings.ReplaceAll(systemdUnit, defaultProgram, *program))
				return err
			}
		},
	}
}
