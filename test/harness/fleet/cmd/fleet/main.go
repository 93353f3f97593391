// Command fleet runs virtual hosts, see package fleet. It serves JSON requests on
// standard input and output (package remote). With the configuration of an agent it
// runs hosts until it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/config"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var settings fleet.Settings
	var path string
	var over time.Duration
	var verbose bool
	flags := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
	flags.StringVar(&path, "config", "", "an agent's configuration, as a registration publishes it; blank: do what standard input says")
	flags.IntVar(&settings.Count, "count", 1, "how many hosts there are")
	flags.DurationVar(&over, "over", 0, "spread their start over this time")
	flags.Uint64Var(&settings.Seed, "seed", 0, "makes hosts and faults come out the same again")
	flags.DurationVar(&settings.BootTime, "boot-time", 0, "how long a host boots")
	flags.DurationVar(&settings.Faults.Latency, "latency", 0, "delays what arrives at hosts")
	flags.Float64Var(&settings.Faults.Loss, "loss", 0, "share of connections that fail or fall silent, 0 to 1")
	flags.DurationVar(&settings.Faults.Disconnects, "disconnects", 0, "mean time between two losses of a host's network; 0: never")
	flags.DurationVar(&settings.Faults.Crashes, "crashes", 0, "mean time between two crashes of a host's agent; 0: never")
	flags.DurationVar(&settings.Faults.PowerCuts, "power-cuts", 0, "mean time between two power cuts of a host; 0: never")
	flags.DurationVar(&settings.Faults.Outage, "outage", 30*time.Second, "how long a network or power is gone at most")
	flags.DurationVar(&settings.Faults.SlowBootstraps, "slow-bootstraps", 0, "delays bootstraps by up to this")
	flags.Float64Var(&settings.Faults.FailingBootstraps, "failing-bootstraps", 0, "share of bootstraps that fail, 0 to 1")
	flags.BoolVar(&verbose, "verbose", false, "log what agents log")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("there is no argument %q, only flags", flags.Arg(0))
	}
	log := slog.New(slog.DiscardHandler)
	if verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if path == "" {
		return remote.Serve(ctx, os.Stdin, os.Stdout, log, nil)
	}
	agent, err := config.Load(path)
	if err != nil {
		return err
	}
	settings.Servers, settings.TrustBundle, settings.Token, settings.Log = agent.Servers, agent.TrustBundle, agent.Token, log
	return watch(ctx, settings, over, os.Stdout)
}

// watch runs hosts and prints the number of hosts in each state when it changes.
func watch(ctx context.Context, settings fleet.Settings, over time.Duration, out io.Writer) error {
	f, err := fleet.New(settings)
	if err != nil {
		return err
	}
	go func() { _ = f.PowerOn(ctx, over) }()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for before := ""; ctx.Err() == nil; {
		if now := fmt.Sprint(f.Figures().Hosts); now != before {
			before = now
			if _, err := fmt.Fprintln(out, now); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return f.Close()
}
