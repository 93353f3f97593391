package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/elemental"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// loadSettings reads the configuration and finds out what the operating system is
// driven by: system is nil on any Linux that is not Elemental OS.
func loadSettings(path string) (settings config.Config, system *elemental.System, err error) {
	settings, err = config.Load(path)
	if err != nil {
		return config.Config{}, nil, err
	}
	system, err = backend(&settings, elemental.System{})
	return settings, system, err
}

// backend settles where the state is. On Elemental OS it is on the OEM partition:
// whatever else is writable goes with a reset, and the recovery system doesn't see
// it.
func backend(settings *config.Config, system elemental.System) (*elemental.System, error) {
	if settings.Backend == config.BackendLinux || settings.Backend != config.BackendElemental && !system.Detect() {
		return nil, nil
	}
	if settings.StateDir == state.DefaultDir {
		settings.StateDir = elemental.StateDir
	}
	if !elemental.InOEM(settings.StateDir) {
		return nil, fmt.Errorf("stateDir: on Elemental OS it has to be below %s, because a reset destroys %s and the host's key with it", elemental.OEMDir, settings.StateDir)
	}
	return &system, nil
}

// inRecovery does all that is to be done where the recovery system of Elemental OS
// was booted. here is false anywhere else.
func inRecovery(ctx context.Context, path string, log *slog.Logger) (here bool, err error) {
	settings, system, err := loadSettings(path)
	if err != nil {
		return false, subcommand.Usage(err)
	}
	if system == nil || system.Mode() != elemental.ModeRecovery {
		return false, nil
	}
	if os.Geteuid() != 0 {
		return true, errors.New("the agent changes the whole system and has to be run as root")
	}
	recovery := &elemental.Recovery{
		System: *system, StateDir: settings.StateDir, Platform: linux.New(linux.Options{}), Commands: oscommand.System{},
		Clock: retry.System{}, Log: log,
	}
	return true, recovery.Run(ctx)
}
