// Command clusters makes many workload clusters on virtual hosts at once, and prints as JSON how long that took and
// what each process took of the processors. It needs neither root nor a container engine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/clusters"
)

func main() {
	// Libraries complain otherwise that they have no logger.
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "clusters:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := clusters.Options{Progress: os.Stderr}
	flags := pflag.NewFlagSet("clusters", pflag.ContinueOnError)
	flags.IntVar(&o.Count, "count", 200, "clusters to make")
	flags.IntVar(&o.ControlPlanes, "control-planes", 1, "control planes of each")
	flags.IntVar(&o.Workers, "workers", 1, "workers of each")
	flags.IntVar(&o.Parallel, "parallel", 20, "clusters that may be in the making at once; 0 for all")
	flags.DurationVar(&o.Timeout, "timeout", time.Hour, "how long they may take")
	flags.StringVar(&o.Management.Folder, "folder", "", "folder for data and logs of the management cluster, empty or absent, and left behind; blank for a temporary one")
	flags.StringVar(&o.Management.Manager, "manager", "", "file of a manager built with -tags simulation; blank builds it")
	flags.StringVar(&o.Management.Checkout, "checkout", "", "folder of the repository; blank to find it from the working directory")
	flags.BoolVar(&o.Management.OneVersion, "one-version", false, "have Cluster API's kinds in their newest version only, without conversions")
	flags.StringArrayVar(&o.Args, "capi-arg", nil, "further argument of each of Cluster API's managers, such as --kube-api-qps=200; may be given several times")
	flags.StringVar(&o.AgentLog, "agent-log", "", "file for what agents log; blank for nowhere")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("there is no argument %q, only flags", flags.Arg(0))
	}
	if o.Count < 1 || o.ControlPlanes < 1 || o.Workers < 0 {
		return errors.New("there has to be a cluster with a control plane")
	}
	figures, err := clusters.Run(ctx, o)
	if figures != nil {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = errors.Join(err, encoder.Encode(figures))
	}
	return err
}
