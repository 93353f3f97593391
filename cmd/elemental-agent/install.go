package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/elemental"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

func installCommand() subcommand.Command {
	return subcommand.Command{
		Name: "install", Summary: "Install Elemental OS from live media, with this agent set up",
		Details: "Installs what the configuration says under os.install by the elemental program, and hands the\n" +
			"configuration to the installed system, which enrols when it first boots. Works on live media\n" +
			"only. All that is on the disk is lost.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			path := configFlag(flags)
			yes := flags.Bool("yes", false, "really do it")
			dry := flags.Bool("dry-run", false, "print what would be done")
			return func(ctx context.Context, s subcommand.Streams, args []string) error {
				if err := noArguments(args); err != nil {
					return err
				}
				return install(ctx, s, *path, elemental.System{}, *yes, *dry)
			}
		},
	}
}

func install(ctx context.Context, s subcommand.Streams, path string, system elemental.System, yes, dry bool) error {
	settings, err := config.Load(path)
	if err != nil {
		return subcommand.Usage(err)
	}
	if settings.Backend == config.BackendLinux {
		return subcommand.Usage(errors.New("backend: only Elemental OS is installed by the agent"))
	}
	what := settings.OS.Install
	installer := &elemental.Installer{System: system, Log: logger(s, slog.LevelInfo)}
	plan, err := installer.Plan(elemental.Settings{
		Device: what.Device, Image: what.Image, CloudInit: what.CloudInit, ConfigDir: what.ConfigDir,
		PowerOff: what.Then == config.ThenPowerOff, Force: what.Force,
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.Out, "This erases %s.\n", plan.Erases); err != nil {
		return err
	}
	if dry {
		_, err := fmt.Fprintf(s.Out, "Would run: elemental %s\nwith %s\n", strings.Join(plan.Command, " "), strings.Join(plan.Environment, "\n     "))
		return err
	}
	if !yes {
		return subcommand.Usage(errors.New("add --yes to go ahead, or --dry-run to see more"))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	return installer.Install(ctx, plan, content)
}
