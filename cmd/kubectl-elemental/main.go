// Command kubectl-elemental is a plugin of kubectl: it shows the fleet of ElementalHosts, explains
// what machines, hosts and clusters wait for, and changes hosts after a look at what follows.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/command"
)

// completer is the name under which kubectl calls the program for completions.
const completer = "kubectl_complete-elemental"

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	log.SetLogger(logr.Discard())
	root := rootCommand(os.Args)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

func rootCommand(args []string) *cobra.Command {
	root := command.New(command.Options{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Version:   version, Clock: clock.RealClock{},
	})
	root.SetArgs(arguments(args))
	return root
}

// arguments returns the arguments for cobra.
func arguments(args []string) []string {
	if filepath.Base(args[0]) == completer {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}
