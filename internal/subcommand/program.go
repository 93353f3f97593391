package subcommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// Exit statuses of a Program. 0 is success.
const (
	ExitFailure = 1
	ExitUsage   = 2
)

// Streams are where a command writes.
type Streams struct{ Out, Err io.Writer }

// Command is one command of a Program.
type Command struct {
	// Name is what follows the program's name. Arguments are those of the line Usage of its help.
	Name, Arguments string
	// Summary is one line, Details a text.
	Summary, Details string
	// SetUp adds the command's flags and returns what runs it with its arguments.
	SetUp func(*pflag.FlagSet) func(context.Context, Streams, []string) error
	// Hidden is true for a command that is not for people: the program's help leaves it out.
	Hidden bool
}

// Program is a program of several commands.
type Program struct {
	// Name is the file name. Summary is a sentence.
	Name, Summary string
	Commands      []Command
}

// usageError is a command line or a configuration that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks an error of a command as one of the command line or of a configuration: the program
// exits with ExitUsage.
func Usage(err error) error { return usageError{err} }

// Run runs the command that the arguments, which are those after the program's name, name. It
// writes an error to errs and returns the exit status.
func (p Program) Run(ctx context.Context, args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		p.usage(errs)
		return ExitUsage
	}
	switch args[0] {
	case "help", "--help", "-h":
		p.usage(out)
		return 0
	}
	for _, c := range p.Commands {
		if c.Name == args[0] {
			return p.execute(ctx, c, args[1:], Streams{out, errs})
		}
	}
	p.complain(errs, fmt.Errorf("there is no command %q; see %s --help", args[0], p.Name))
	return ExitUsage
}

func (p Program) execute(ctx context.Context, c Command, args []string, s Streams) int {
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	run := c.SetUp(flags)
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		p.help(s.Out, c, flags)
		return 0
	}
	if err != nil {
		err = Usage(fmt.Errorf("%w; see %s %s --help", err, p.Name, c.Name))
	} else {
		err = run(ctx, s, flags.Args())
	}
	if err == nil {
		return 0
	}
	p.complain(s.Err, err)
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	return ExitFailure
}

func (p Program) help(w io.Writer, c Command, flags *pflag.FlagSet) {
	line := strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Name, c.Name, c.Arguments))
	_, _ = fmt.Fprintf(w, "%s\n\n%s\n\nUsage:\n  %s [flags]\n\nFlags:\n%s", c.Summary, c.Details, line, flags.FlagUsages())
}

func (p Program) usage(w io.Writer) {
	width := 0
	for _, c := range p.Commands {
		if !c.Hidden {
			width = max(width, len(c.Name))
		}
	}
	var list strings.Builder
	for _, c := range p.Commands {
		if !c.Hidden {
			fmt.Fprintf(&list, "  %-*s  %s\n", width, c.Name, c.Summary)
		}
	}
	_, _ = fmt.Fprintf(w, `%s

Usage:
  %s COMMAND [flags]

Commands:
%s
"%s COMMAND --help" says more about a command.
`, p.Summary, p.Name, list.String(), p.Name)
}

func (p Program) complain(w io.Writer, err error) { _, _ = fmt.Fprintln(w, p.Name+":", err) }
