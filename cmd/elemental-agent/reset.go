package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

func resetCommand() subcommand.Command {
	return subcommand.Command{
		Name: "reset", Summary: "Remove the node from this host",
		Details: "Stops Kubernetes, reboots the host and removes what the node left behind. The host stays\n" +
			"enrolled. Before, stop the agent's service (systemctl stop elemental-agent) and leave it\n" +
			"enabled: it continues the reset after the reboot. Deleting the Machine in the management\n" +
			"cluster does the same and is the usual way.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			path := configFlag(flags)
			yes := flags.Bool("yes", false, "really do it: all data of the node is lost")
			force := flags.Bool("force", false, "also when the manager uses this host")
			return func(ctx context.Context, s subcommand.Streams, args []string) error {
				if err := noArguments(args); err != nil {
					return err
				}
				if !*yes {
					return subcommand.Usage(errors.New("a reset destroys all data of the node on this host; add --yes to go ahead"))
				}
				return resetHost(ctx, s, *path, *force)
			}
		},
	}
}

func resetHost(ctx context.Context, s subcommand.Streams, path string, force bool) (err error) {
	local, err := assemble(path, assembleOptions{}, logger(s, slog.LevelInfo))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.unlock()) }()
	plan := local.store.Plan()
	claimed := plan.Desired.ProviderID != "" || plan.Operation != nil && plan.Operation.Type == protocol.OperationBootstrap
	if claimed && !force {
		return errors.New("the manager uses this host for a Machine: delete the Machine, or add --force to break it")
	}
	op := state.Operation{
		Operation: protocol.Operation{Type: protocol.OperationReset, ID: state.LocalPrefix + time.Now().UTC().Format("20060102T150405")},
		StartedAt: time.Now().UTC(),
	}
	result, err := local.agent.Execute(ctx, op)
	if ctx.Err() != nil {
		_, err = fmt.Fprintln(s.Out, "The agent's service continues the reset, if necessary after a reboot.")
		return err
	}
	if err != nil {
		return err
	}
	if result.State != protocol.StateSucceeded {
		return fmt.Errorf("the host is not clean yet: %s; the agent tries again when it runs", result.Message)
	}
	_, err = fmt.Fprintln(s.Out, "The host is clean.", result.Message)
	return err
}
