// Command quickstart shows a cluster on virtual hosts, see package quickstart. "make quickstart" runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/quickstart"
)

const usage = `Usage: quickstart COMMAND [flags]

  up                 start everything, make a cluster, and show how its endpoint survives the death of a host
  down               stop everything and remove its files
  view               show hosts, Machines and the endpoint until interrupted
  host ACTION NAME   cause an event on a host: PowerOn, PowerOff, Reboot, Crash, Cut, Join
  serve              run the simulation itself; "up" starts this in the background
`

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends this process at once; "down" then removes what is left.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
	case interrupted && errors.Is(err, context.Canceled):
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var folder, checkout, manager string
	var tunnel bool
	flags := pflag.NewFlagSet("quickstart", pflag.ContinueOnError)
	flags.StringVar(&folder, "folder", filepath.Join("out", "quickstart"), "folder of the simulation; each folder has a simulation of its own")
	flags.StringVar(&checkout, "checkout", ".", "folder of this repository")
	flags.StringVar(&manager, "manager", "", "file of a manager built with -tags simulation; blank builds it")
	flags.BoolVar(&tunnel, "tunnel", false, "make a cluster that nothing but its hosts can connect to, with an endpoint of type Tunnel")
	flags.Usage = func() { fmt.Fprintf(os.Stderr, "%s\n%s", usage, flags.FlagUsages()) }
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, path := range []*string{&folder, &checkout, &manager} {
		if *path != "" {
			absolute, err := filepath.Abs(*path)
			if err != nil {
				return fmt.Errorf("finding %s: %w", *path, err)
			}
			*path = absolute
		}
	}
	f := quickstart.Folder{Path: folder}
	switch args := flags.Args(); strings.Join(args[:min(len(args), 1)], "") {
	case "up":
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding this program: %w", err)
		}
		o := quickstart.Options{
			Folder: f, Checkout: checkout, Manager: manager, Program: program, End: "make quickstart-down", Tunnel: tunnel,
			Screen: quickstart.NewScreen(os.Stdout),
		}
		if flags.Changed("folder") {
			o.Flags = " --folder " + folder
			o.End = program + o.Flags + " down"
		}
		return quickstart.Up(ctx, o)
	case "down":
		err := f.Down(ctx)
		if err == nil {
			fmt.Println("No process of the quickstart runs any more, and its folder is gone")
		}
		return err
	case "view":
		return quickstart.View(ctx, f, quickstart.NewScreen(os.Stdout))
	case "host":
		if len(args) != 3 {
			return errors.New("host takes an action and the name of a host")
		}
		return f.Do(ctx, remote.Action(args[1]), args[2])
	case "serve":
		return f.Serve(ctx, checkout, manager, tunnel, os.Stdout)
	default:
		flags.Usage()
		return errors.New("name one of these commands")
	}
}
