package step

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
)

// Step is a part of an operation that is recorded as a whole.
type Step interface {
	// Title names the step in the journal and in reports.
	Title() string
	// Prepare inspects the host, decides in the intent what Execute does, and records
	// in the manifest what Undo must revert. It changes nothing outside the
	// operation's directory. It is called again if its intent was not saved.
	Prepare(ctx context.Context, e *Execution, in *journal.Intent) error
	// Execute makes the changes. It is called again after a kill, with the saved
	// intent.
	Execute(ctx context.Context, e *Execution, in *journal.Intent) error
}

// Command is the step that runs a program that may be repeated.
type Command struct {
	Label   string
	Args    []string
	Service string
	// Optional turns a failure into a warning.
	Optional bool
}

// Title implements Step.
func (s Command) Title() string { return s.Label }

// Prepare implements Step.
func (s Command) Prepare(_ context.Context, e *Execution, _ *journal.Intent) error {
	if s.Service != "" {
		e.Manifest().Services = journal.AddOnce(e.Manifest().Services, s.Service)
	}
	return nil
}

// Execute implements Step.
func (s Command) Execute(ctx context.Context, e *Execution, _ *journal.Intent) error {
	err := e.Run(ctx, s.Args...)
	if err != nil && s.Optional && ctx.Err() == nil {
		e.Warn("%s: %v", s.Label, err)
		return nil
	}
	return err
}
