package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/assembly"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap/adoption"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/erase"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

func configFlag(flags *pflag.FlagSet) *string {
	return flags.String("config", config.DefaultPath, "the agent's configuration")
}

func logger(s subcommand.Streams, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: level}))
}

// localAgent is the agent of this machine with its configuration and its state.
type localAgent struct {
	config config.Config
	store  *state.Store
	agent  *agent.Agent
	// unlock unlocks the state directory.
	unlock func() error
}

// assembleOptions say how a command uses the agent.
type assembleOptions struct {
	// newKey replaces the host's key.
	newKey bool
	// selfUpdate updates this program when a plan pins another release.
	selfUpdate bool
}

// assemble reads the configuration, locks the state directory, and puts the agent
// together.
func assemble(path string, o assembleOptions, log *slog.Logger) (_ *localAgent, err error) {
	settings, system, err := loadSettings(path)
	if err != nil {
		return nil, subcommand.Usage(err)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the agent changes the whole system and has to be run as root")
	}
	dir, err := state.NewDir(settings.StateDir)
	if err != nil {
		return nil, err
	}
	unlock, err := dir.Lock()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock())
		}
	}()
	store, err := state.Open(dir)
	if err != nil {
		return nil, err
	}
	keys := hostkey.Keys{Policy: settings.Key.TPM, TPM: tpm.Device{Path: tpm.DefaultDevice}, Log: log}
	executor, err := newExecutor(dir, settings.StateDir)
	if err != nil {
		return nil, err
	}
	machine, applier, served, err := newMachine(store.Documents(), settings.StateDir, log)
	if err != nil {
		return nil, err
	}
	boot, err := machine.BootID()
	if err != nil {
		return nil, err
	}
	if o.newKey {
		if err := connection.ReplaceKey(store, keys); err != nil {
			return nil, err
		}
	}
	options := assembly.Options{
		Store: store, Keys: keys, Servers: settings.Servers, TrustBundle: settings.TrustBundle, Source: settings.Source(),
		Built: built(), RotateAfter: settings.RotateAfter,
		Platform: machine, Executor: executor, Endpoint: applier, Eraser: &erase.Eraser{}, Adopter: adoption.Checker{Root: "/"},
		Local: served, Tunnel: served.DialTarget, Root: "/", Clock: retry.System{},
		Token: settings.Token, RemoveToken: func() error { return config.ForgetToken(path) }, ReadoptAfter: settings.ReadoptAfter,
		Status: connectionFile(log).write, Version: agentVersion(), BootID: boot, Log: log,
	}
	if system == nil {
		addBundles(&options, machine, settings.StateDir, log)
		addSnapshots(&options, executor, settings.StateDir, log)
		addCertificateRenewal(&options, settings.StateDir, log)
		if err := addNodeUpgrade(&options, machine, settings.StateDir, log); err != nil {
			return nil, err
		}
	} else {
		addElemental(&options, *system, machine, settings.StateDir, log)
	}
	if o.selfUpdate {
		options.NewUpdater = func(currentClient func() *client.Client) (agent.Updater, error) {
			return newUpdater(settings, store, currentClient, log)
		}
	}
	a, err := assembly.New(options)
	if err != nil {
		return nil, err
	}
	return &localAgent{config: settings, store: store, agent: a, unlock: unlock}, nil
}

func newExecutor(files state.Files, dir string) (*bootstrap.LocalExecutor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return &bootstrap.LocalExecutor{
		Files: files, Dir: dir, Root: "/", System: host.LocalSystem{}, ScriptCommand: []string{self, scriptCommand},
	}, nil
}

func runCommand() subcommand.Command {
	return subcommand.Command{
		Name: "run", Summary: "Enrol if necessary, then carry out what the manager requests; the service runs this",
		Details: "Runs until it is stopped. Scripts of a bootstrap that run at this time continue, and the next\nstart finds them again.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			path := configFlag(flags)
			verbose := flags.Bool("verbose", false, "log more")
			selfUpdate := flags.Bool("self-update", false, "update to the version that the manager requests; only for a service that starts\n"+
				"the agent again when it ends, and runs the guard before, as the unit of the agent does")
			return func(ctx context.Context, s subcommand.Streams, args []string) (err error) {
				if err := noArguments(args); err != nil {
					return err
				}
				level := slog.LevelInfo
				if *verbose {
					level = slog.LevelDebug
				}
				log := logger(s, level)
				if here, err := inRecovery(ctx, *path, log); here || err != nil {
					return err
				}
				local, err := assemble(*path, assembleOptions{selfUpdate: *selfUpdate}, log)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, local.unlock()) }()
				log.Info("Starting", "version", agentVersion(), "config", local.config.String())
				if err := local.agent.Run(ctx); !errors.Is(err, agent.ErrRestart) {
					return err
				}
				return nil
			}
		},
	}
}

func enrolCommand() subcommand.Command {
	return subcommand.Command{
		Name: "enrol", Summary: "Enrol this host once and print its name",
		Details: "Makes the host's key if it has none, and enrols the host at the manager. Enrolling again\nchanges nothing. \"run\" does this by itself. Stop the agent's service before.\n\n" +
			"With --new-key the host gets another key first. Use it if the key was lost with the TPM, or\n" +
			"if the host is locked. An administrator then has to approve the host again.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			path := configFlag(flags)
			newKey := flags.Bool("new-key", false, "replace the host's key; the old one is lost")
			return func(ctx context.Context, s subcommand.Streams, args []string) (err error) {
				if err := noArguments(args); err != nil {
					return err
				}
				local, err := assemble(*path, assembleOptions{newKey: *newKey}, logger(s, slog.LevelWarn))
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, local.unlock()) }()
				if err := local.agent.Enrol(ctx); err != nil {
					return err
				}
				local.agent.ForgetToken()
				identity := local.store.Identity()
				if _, err := fmt.Fprintln(s.Out, identity.Namespace+"/"+identity.Name); err != nil {
					return err
				}
				if !identity.Approved {
					_, err = fmt.Fprintln(s.Err, "An administrator has to approve this host before it is used.")
				}
				return err
			}
		},
	}
}
