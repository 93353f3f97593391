package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/elemental"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/erase"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/executor"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/reboot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func configFlag(flags *pflag.FlagSet) *string {
	return flags.String("config", config.DefaultPath, "the agent's configuration")
}

func logger(s streams, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level}))
}

// assembly is everything that runs on a host, put together.
type assembly struct {
	config config.Config
	store  *state.Store
	agent  *agent.Agent
	close  func() error
}

// assemble reads the configuration and the state, which it locks. newKey has the
// host's key replaced by another one.
func assemble(path string, newKey bool, log *slog.Logger) (_ *assembly, err error) {
	settings, system, err := loadSettings(path)
	if err != nil {
		return nil, &usageError{err}
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
	keeper := endpoint.New(endpoint.Options{Documents: store.Documents(), Log: log})
	machine := host.New(host.Options{Endpoint: keeper})
	boot, err := machine.BootID()
	if err != nil {
		return nil, err
	}
	keys := hostkey.Keys{Policy: settings.Key.TPM, TPM: tpm.Device{Path: tpm.DefaultDevice}, Log: log}
	if newKey {
		if err := agent.ReplaceKey(store, keys); err != nil {
			return nil, err
		}
	}
	link, err := agent.NewLink(agent.LinkOptions{
		Store: store, Keys: keys, Servers: settings.Servers, TrustBundle: settings.TrustBundle, Source: settings.Source(),
		Built: built(), Now: time.Now, UserAgent: "elemental-agent/" + agentVersion(),
	})
	if err != nil {
		return nil, err
	}
	execute, err := newExecutor(dir, settings.StateDir)
	if err != nil {
		return nil, err
	}
	linker := &node.Linker{Clock: retry.System{}}
	runners := map[protocol.OperationType]agent.Runner{
		protocol.OperationReset:  &agent.Reset{Store: store, Host: machine, Undoer: execute, Observer: machine, BootID: boot, Log: log},
		protocol.OperationReboot: &reboot.Runner{Documents: store.Documents(), Host: machine, BootID: boot, Log: log},
	}
	if system != nil {
		runners[protocol.OperationReset] = &elemental.Reset{
			System: *system, Store: store, Undoer: execute, Observer: machine, Node: machine, Host: machine,
			Commands: host.Commands{}, BootID: boot, Log: log,
		}
		runners[protocol.OperationUpgrade] = &elemental.Upgrade{
			System: *system, Documents: store.Documents(), Host: machine, BootID: boot, Log: log,
		}
	}
	runners[protocol.OperationReset] = &erase.Runner{
		Runner: runners[protocol.OperationReset], Documents: store.Documents(), Eraser: &erase.Eraser{}, Log: log,
	}
	runners[protocol.OperationBootstrap] = &agent.Bootstrap{
		Source:    func() agent.Source { return link.Client() },
		Documents: store.Documents(), Executor: execute, Observer: machine, Surveyor: machine, Namer: machine, Linker: linker, Log: log,
		Keeper: keeper, Desired: func() protocol.Desired { return store.Plan().Desired },
	}
	return &assembly{
		config: settings, store: store, close: unlock,
		agent: agent.New(agent.Options{
			Store: store, Link: link, Token: settings.Token,
			ForgetTokenFile: func() error { return config.ForgetToken(path) }, Observer: machine, Namer: machine, Watcher: machine, Linker: linker,
			Runners: runners, Erases: true, Keeper: keeper, Prober: probe.New(probe.Options{Root: "/", Own: machine.Own, Clock: retry.System{}}),
			RotateAfter: settings.RotateAfter, ReadoptAfter: settings.ReadoptAfter, Status: connectionFile(log).write,
			Clock: retry.System{}, Log: log, Version: agentVersion(), BootID: boot,
		}),
	}, nil
}

func newExecutor(files state.Files, dir string) (*executor.Executor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return &executor.Executor{
		Files: files, Dir: dir, Root: "/", System: apply.LocalSystem{}, Runner: []string{self, scriptCommand},
	}, nil
}

func runCommand() command {
	return command{
		name: "run", summary: "Enrol if need be, then do what the manager wants; the service runs this",
		details: "Runs until it is told to stop. Scripts of a bootstrap that are running then go on, and the\nnext start picks them up again.",
		setUp: func(flags *pflag.FlagSet) func(context.Context, streams, []string) error {
			path := configFlag(flags)
			verbose := flags.Bool("verbose", false, "log more")
			selfUpdate := flags.Bool("self-update", false, "become the release that the manager pins; for a service that starts the agent\n"+
				"again when it ends, and runs the guard first as the unit that comes with it does")
			return func(ctx context.Context, s streams, args []string) (err error) {
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
				parts, err := assemble(*path, false, log)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, parts.close()) }()
				if *selfUpdate {
					if err := parts.updateItself(log); err != nil {
						return err
					}
				}
				log.Info("Starting", "version", agentVersion(), "config", parts.config.String())
				if err := parts.agent.Run(ctx); !errors.Is(err, agent.ErrRestart) {
					return err
				}
				return nil
			}
		},
	}
}

func enrolCommand() command {
	return command{
		name: "enrol", summary: "Enrol this host once and print its name",
		details: "Makes the host's key if it has none and asks the manager for a place in the fleet. Enrolling\nagain changes nothing. \"run\" does this by itself.\n\n" +
			"With --new-key the host gets another key first, for one whose key was lost with its TPM or\n" +
			"locked. An administrator then has to let it in again.",
		setUp: func(flags *pflag.FlagSet) func(context.Context, streams, []string) error {
			path := configFlag(flags)
			newKey := flags.Bool("new-key", false, "replace the host's key; the old one is lost")
			return func(ctx context.Context, s streams, args []string) (err error) {
				if err := noArguments(args); err != nil {
					return err
				}
				parts, err := assemble(*path, *newKey, logger(s, slog.LevelWarn))
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, parts.close()) }()
				if err := parts.agent.Enrol(ctx); err != nil {
					return err
				}
				parts.agent.ForgetToken()
				who := parts.store.Identity()
				if _, err := fmt.Fprintln(s.out, who.Namespace+"/"+who.Name); err != nil {
					return err
				}
				if !who.Approved {
					_, err = fmt.Fprintln(s.err, "An administrator has to approve this host before it is used.")
				}
				return err
			}
		},
	}
}
