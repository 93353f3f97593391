// Command bench runs benchmarks of this provider, see package bench. Its arguments are scenarios; without arguments it runs
// all.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench"
)

// play is the first argument of a process that calls bench.Play.
const play = "play"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == play {
		return bench.Play(ctx, args[1:])
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	options := bench.Options{Self: []string{self, play}, Progress: os.Stderr}
	var document string
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.IntVar(&options.Hosts, "hosts", bench.DefaultHosts, "virtual hosts; targets are for the default")
	flags.IntVar(&options.Clusters, "clusters", bench.DefaultClusters, "workload clusters of the scenario clusters")
	flags.IntVar(&options.Snapshots, "snapshots", bench.DefaultSnapshots, "snapshots of the scenario snapshots")
	flags.Int64Var(&options.Database, "database", bench.DefaultDatabase, "bytes that the scenario snapshots stores in etcd")
	flags.DurationVar(&options.Rest, "rest", bench.DefaultRest, "how long a fleet at rest is watched")
	flags.StringVar(&options.Profiles, "profile", "", "folder that gets profiles of the manager; blank for none, as they cost the manager some percent")
	flags.StringVar(&options.Manager, "manager", "", "file of the manager; blank builds it")
	flags.StringVar(&document, "document", "", "Markdown file in which the tables are replaced; blank to print them only")
	if err := flags.Parse(args); err != nil {
		return err
	}
	scenarios, err := choose(flags.Args())
	if err != nil {
		return err
	}
	return bench.Measure(ctx, scenarios, options, func(section table.Section) error {
		fmt.Println(section)
		if document == "" {
			return nil
		}
		return write(document, section)
	})
}

// choose returns the scenarios with the given names, or all.
func choose(names []string) ([]bench.Scenario, error) {
	all := bench.Scenarios()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []bench.Scenario
	for _, name := range names {
		var known []string
		before := len(chosen)
		for _, s := range all {
			if known = append(known, s.Name); s.Name == name {
				chosen = append(chosen, s)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("there is no scenario %q, but %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// write writes figures into a document. It reads the document each time, because a run of all scenarios takes long.
func write(document string, section table.Section) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	changed, err := section.Replace(string(text))
	if err != nil {
		return err
	}
	if err := os.WriteFile(document, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	return nil
}
