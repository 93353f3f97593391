// Command embedded runs a management cluster of plain processes until it is interrupted, see package embedded.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
)

func main() {
	// A second signal ends this process immediately; the kernel then kills all others.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	options := embedded.Options{Progress: os.Stderr}
	flags := pflag.NewFlagSet("embedded", pflag.ContinueOnError)
	flags.StringVar(&options.Folder, "folder", "", "folder for data, credentials and logs, empty or absent, and left behind; blank for a temporary one")
	flags.StringVar(&options.Manager, "manager", "", "file of the manager; blank builds it")
	flags.StringArrayVar(&options.ManagerArgs, "manager-arg", nil, "further argument of the manager; may be given several times")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("there is no argument %q, only flags", flags.Arg(0))
	}
	cluster, err := embedded.Start(ctx, options)
	if err != nil {
		return fmt.Errorf("starting a management cluster: %w", err)
	}
	fmt.Printf("export KUBECONFIG=%s\n", cluster.Kubeconfig)
	fmt.Fprintf(os.Stderr, "Agents find the manager at %s and trust %s. Logs are in %s. Interrupt to stop everything.\n",
		cluster.AgentURL, filepath.Join(cluster.Folder, "agent-ca.crt"), filepath.Join(cluster.Folder, "logs"))
	select {
	case <-ctx.Done():
	case <-cluster.Done():
	}
	return errors.Join(cluster.Stop(), cluster.Err())
}
