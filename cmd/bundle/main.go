package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	status := program().Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func program() subcommand.Program {
	return subcommand.Program{
		Name: "bundle", Summary: "bundle builds bundles, from which hosts get a version of Kubernetes.",
		Commands: []subcommand.Command{buildCommand(), showCommand()},
	}
}
