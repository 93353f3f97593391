// Command carriers measures what carries streams from the manager to a host: this project's tunnel, that of
// rancher/remotedialer, and TLS without any. It prints the figures as JSON (figures.Report). A part of them needs root;
// without it the report says so.
//
// It is a Go module of its own, so that no program of the project has remotedialer among its modules.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
)

// slower is how much longer a measurement on a slow link takes.
const slower = 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "carriers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 && args[0] == holdCommand {
		return hold(ctx, args[1:], in, out)
	}
	flags := flag.NewFlagSet("carriers", flag.ContinueOnError)
	over := flags.Duration("over", 3*time.Second, "how long each measurement on the loopback takes; one on a slow link takes twenty times as long")
	tunnels := flags.Int("tunnels", 10000, "idle tunnels")
	rest := flags.Duration("rest", 2*time.Minute, "how long idle tunnels are left alone before their memory is measured")
	only := flags.String("only", "", "one of loopback, link and memory; blank measures all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *over <= 0 || *tunnels < 1 || *rest < 0 {
		return errors.New("there are no arguments, only flags, whose values are positive")
	}
	m := &measurement{}
	measured := false
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"loopback", func() error { return m.onLoopback(ctx, *over) }},
		{"link", func() error { return m.onSlowLink(ctx, slower*(*over)) }},
		{"memory", func() error { return m.ofIdleTunnels(ctx, *tunnels, *rest) }},
	} {
		if *only != "" && *only != part.name {
			continue
		}
		measured = true
		if err := part.run(); err != nil {
			return err
		}
	}
	if !measured {
		return fmt.Errorf("there is no part %q", *only)
	}
	if err := json.NewEncoder(out).Encode(m.report); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// measurement collects figures.
type measurement struct{ report figures.Report }

func (m *measurement) row(row table.Row) {
	m.report.Rows = append(m.report.Rows, row)
	fmt.Fprintf(os.Stderr, "%s: %s, bare %s %s\n", row.Figure, row.Value, row.Bare, row.Ratio)
}

func (m *measurement) note(format string, args ...any) {
	m.report.Notes = append(m.report.Notes, fmt.Sprintf(format, args...))
}
