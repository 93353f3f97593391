package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"
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

func versionCommand() command {
	return command{
		name: "version", summary: "Print the version",
		details: "Prints the version of this program.",
		setUp: func(*pflag.FlagSet) func(context.Context, streams, []string) error {
			return func(_ context.Context, s streams, args []string) error {
				if err := noArguments(args); err != nil {
					return err
				}
				_, err := fmt.Fprintf(s.out, "elemental-agent %s %s/%s\n", agentVersion(), runtime.GOOS, runtime.GOARCH)
				return err
			}
		},
	}
}
