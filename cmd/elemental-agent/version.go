package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// version and buildTime (RFC 3339) are set by the linker.
var (
	version   string
	buildTime string //nolint:gochecknoglobals // the linker's way in
)

// releasedAfter has certainly passed; it stands in where no build time is set.
func releasedAfter() time.Time { return time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) }

func agentVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "v0.0.0-dev"
}

// built is a time before which this program did not exist.
func built() time.Time {
	if at, err := time.Parse(time.RFC3339, buildTime); err == nil && at.After(releasedAfter()) {
		return at
	}
	return releasedAfter()
}

func versionCommand() subcommand.Command {
	return subcommand.Command{
		Name: "version", Summary: "Print the version",
		Details: "Prints the version of this program.",
		SetUp: func(*pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			return func(_ context.Context, s subcommand.Streams, args []string) error {
				if err := noArguments(args); err != nil {
					return err
				}
				_, err := fmt.Fprintf(s.Out, "elemental-agent %s %s/%s\n", agentVersion(), runtime.GOOS, runtime.GOARCH)
				return err
			}
		},
	}
}
