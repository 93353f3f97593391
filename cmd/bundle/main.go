package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	status := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// streams are where a command writes.
type streams struct{ out, err io.Writer }

// command is a sub-command.
type command struct {
	name, arguments, summary, details string
	// setUp adds the command's flags and returns what runs it.
	setUp func(*pflag.FlagSet) func(context.Context, streams, []string) error
}

func commands() []command { return []command{buildCommand(), showCommand()} }

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func dispatch(ctx context.Context, args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		usage(errs)
		return exitUsage
	}
	switch args[0] {
	case "help", "--help", "-h":
		usage(out)
		return 0
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.execute(ctx, args[1:], streams{out, errs})
		}
	}
	complain(errs, fmt.Errorf("there is no command %q; see bundle --help", args[0]))
	return exitUsage
}

func (c command) execute(ctx context.Context, args []string, s streams) int {
	flags := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	run := c.setUp(flags)
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		c.help(s.out, flags)
		return 0
	}
	if err != nil {
		err = &usageError{fmt.Errorf("%w; see bundle %s --help", err, c.name)}
	} else {
		err = run(ctx, s, flags.Args())
	}
	if err == nil {
		return 0
	}
	complain(s.err, err)
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

func (c command) help(w io.Writer, flags *pflag.FlagSet) {
	line := strings.TrimSpace(fmt.Sprintf("bundle %s %s", c.name, c.arguments))
	_, _ = fmt.Fprintf(w, "%s\n\n%s\n\nUsage:\n  %s [flags]\n\nFlags:\n%s", c.summary, c.details, line, flags.FlagUsages())
}

func usage(w io.Writer) {
	var list strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&list, "  %-7s%s\n", c.name, c.summary)
	}
	_, _ = fmt.Fprintf(w, `bundle builds bundles, from which hosts get a version of Kubernetes.

Usage:
  bundle COMMAND [flags]

Commands:
%s
"bundle COMMAND --help" says more about a command.
`, list.String())
}

func complain(w io.Writer, err error) { _, _ = fmt.Fprintln(w, "bundle:", err) }
