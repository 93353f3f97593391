package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// applyFlags are the flags of the apply command.
type applyFlags struct {
	format, stateDir, instance, hostname string
	dryRun                               bool
}

func applyCommand() subcommand.Command {
	return subcommand.Command{
		Name: "apply", Arguments: "FILE", Summary: "Execute bootstrap data on this host, without any manager",
		Details: "Executes cloud-config as a bootstrap would. The whole document is checked first; with\n" +
			"--dry-run nothing else is done, and what would be done is printed.",
		SetUp: func(flags *pflag.FlagSet) func(context.Context, subcommand.Streams, []string) error {
			f := &applyFlags{}
			flags.StringVar(&f.format, "format", protocol.FormatCloudConfig, "the format of the file")
			flags.StringVar(&f.stateDir, "state-dir", state.DefaultDir, "where to keep the progress and what was replaced")
			flags.StringVar(&f.instance, "instance-id", "", "the value of ds.meta_data.instance_id (default: of the present time)")
			flags.StringVar(&f.hostname, "hostname", "", "the value of ds.meta_data.local_hostname (default: this host's name)")
			flags.BoolVar(&f.dryRun, "dry-run", false, "only print what would be done")
			return func(ctx context.Context, s subcommand.Streams, args []string) error {
				if len(args) != 1 {
					return subcommand.Usage(errors.New("apply takes the path of one file"))
				}
				return f.apply(ctx, s, args[0])
			}
		},
	}
}

func (f *applyFlags) apply(ctx context.Context, s subcommand.Streams, path string) (err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the bootstrap data: %w", err)
	}
	if f.hostname == "" {
		if f.hostname, err = os.Hostname(); err != nil {
			return fmt.Errorf("looking up the host name: %w", err)
		}
	}
	if f.instance == "" {
		f.instance = state.LocalPrefix + time.Now().UTC().Format("20060102T150405")
	}
	if f.dryRun {
		return f.describe(s, data)
	}
	dir, err := state.NewDir(f.stateDir)
	if err != nil {
		return err
	}
	unlock, err := dir.Lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	execute, err := newExecutor(dir, f.stateDir)
	if err != nil {
		return err
	}
	op := state.Operation{Operation: protocol.Operation{Type: "apply", ID: f.instance}}
	job := bootstrap.Job{Folder: op.Folder(), Data: data, Format: f.format, ID: f.instance, Hostname: f.hostname}
	log := logger(s, slog.LevelInfo)
	warnings, err := execute.Check(job)
	if err != nil {
		return err
	}
	executing, err := execute.Execute(ctx, job, func(step string) { log.Info("Executing", "step", step) })
	for _, warning := range append(warnings, executing...) {
		log.Warn("Bootstrap data", "warning", warning)
	}
	var failure *bootstrap.Failure
	if err == nil || errors.As(err, &failure) {
		err = errors.Join(err, execute.RemoveSecrets(job.Folder))
	}
	return err
}

// describe prints what would be done.
func (f *applyFlags) describe(s subcommand.Streams, data []byte) error {
	vars, err := bootstrap.Variables("/", f.instance, f.hostname)
	if err != nil {
		return err
	}
	config, warnings, err := parser.Parse(data, f.format, vars)
	if err != nil {
		return fmt.Errorf("checking the bootstrap data: %w", err)
	}
	for _, warning := range warnings {
		if _, err := fmt.Fprintln(s.Err, "Warning:", warning); err != nil {
			return err
		}
	}
	return bootstrapdata.Describe(s.Out, config)
}
