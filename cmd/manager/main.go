// Command manager runs the elemental infrastructure provider: its reconcilers,
// its webhooks and the API that host agents talk to.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set by the linker.
var version = "v0.0.0-dev"

// furtherArguments is the environment variable with further arguments, separated by spaces. A
// variable of clusterctl can be one string only, not several arguments.
const furtherArguments = "MANAGER_ARGS"

func main() {
	if err := run(ctrl.SetupSignalHandler(), arguments(os.Args[1:], os.Getenv(furtherArguments))); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

// arguments returns the arguments of the command line and the further ones, which decide if both
// have a flag.
func arguments(line []string, further string) []string {
	return slices.Concat(line, strings.Fields(further))
}

func run(ctx context.Context, args []string) error {
	o := newOptions()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	o.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("parsing flags: %w", err)
	}
	if o.printVersion {
		fmt.Println(version)
		return nil
	}
	if err := o.validate(); err != nil {
		return fmt.Errorf("checking flags: %w", err)
	}
	if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
		return fmt.Errorf("setting up logs: %w", err)
	}
	debug.SetGCPercent(o.gcPercent)
	ctrl.SetLogger(klog.Background())
	mgr, err := newManager(ctx, o)
	if err != nil {
		return err
	}
	klog.Background().Info("Starting manager", "version", version)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running manager: %w", err)
	}
	return nil
}
