package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// Commands that are processes of the agent, not for people.
const (
	// scriptCommand runs a script.
	scriptCommand = "run-script"
	// endpointCommand forwards the control plane's endpoint.
	endpointCommand = "endpoint"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == scriptCommand {
		os.Exit(script.Main(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == endpointCommand {
		os.Exit(forwarder.Main(os.Args[2], linux.New(linux.Options{}).LocalAddresses))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	status := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// dispatch runs the command that the arguments name, and returns the exit status.
func dispatch(ctx context.Context, args []string, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "--version" {
		args = []string{"version"}
	}
	return subcommand.Program{
		Name: "elemental-agent", Summary: "elemental-agent makes this host available to Cluster API.",
		Commands: []subcommand.Command{
			runCommand(), enrolCommand(), statusCommand(), resetCommand(), applyCommand(), versionCommand(), guardCommand(), installCommand(), unitCommand(),
		},
	}.Run(ctx, args, out, errs)
}

// noArguments refuses arguments that would be ignored.
func noArguments(args []string) error {
	if len(args) > 0 {
		return subcommand.Usage(fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}
