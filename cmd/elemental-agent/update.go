package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/update"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// runningProgram is this program, also after its file was replaced.
const runningProgram = "/proc/self/exe"

// newUpdater returns what replaces this program when a plan pins another release; nil if
// the program cannot be replaced.
func newUpdater(settings config.Config, store *state.Store, currentClient func() *client.Client, log *slog.Logger) (agent.Updater, error) {
	path, err := program()
	if err != nil {
		log.Warn("Doesn't update itself", "error", err)
		return nil, nil
	}
	updater, err := update.New(update.Options{
		Documents: store.Documents(), Disk: update.System{}, Folder: filepath.Join(settings.StateDir, "update"), Path: path,
		Running: func() (io.ReadCloser, error) { return os.Open(runningProgram) },
		Version: agentVersion(),
		Source:  func() update.Source { return currentClient() },
		Probe: func(ctx context.Context, path string) (string, error) {
			return update.ProbeVersion(ctx, retry.System{}, path)
		},
		Clock: retry.System{}, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if !updater.CanUpdate() {
		log.Warn("Can't be updated where it is: the folder is read-only", "path", path)
	}
	return updater, nil
}

// program is the path of this program. A service that starts it by another one,
// such as a symbolic link, would not find the former program beside it.
func program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	if os.Args[0] != path {
		return "", fmt.Errorf("the service starts %s, and the program is %s: have it start the latter", os.Args[0], path)
	}
	return path, nil
}

// guardCommand is for the service: see update.Guard.
func guardCommand() subcommand.Command {
	return subcommand.Command{
		Name: "guard", Summary: "Put the former agent back if its successor never reached the manager", Hidden: true,
		Details: "The service runs the former agent with this command before each start of a new one.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			path := configFlag(flags)
			return func(_ context.Context, s subcommand.Streams, args []string) (err error) {
				if err := noArguments(args); err != nil {
					return err
				}
				settings, _, err := loadSettings(*path)
				if err != nil {
					return subcommand.Usage(err)
				}
				dir, err := state.NewDir(settings.StateDir)
				if err != nil {
					return err
				}
				unlock, err := dir.Lock()
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, unlock()) }()
				return update.Guard(dir, update.System{}, time.Now(), logger(s, slog.LevelInfo))
			}
		},
	}
}
