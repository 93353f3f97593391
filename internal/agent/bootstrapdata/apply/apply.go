package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/step"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
)

// ErrInterrupted matches a Failure after a power cut or a kill interrupted a script.
// The script is never run again.
var ErrInterrupted = script.ErrInterrupted

// Options configure Apply, Undo and Abort.
type Options struct {
	// Dir is the operation's directory, 0700 and on disk. It holds scripts,
	// their output, and copies of replaced files.
	Dir string
	// Root is "/", or a directory that stands for it in tests.
	Root    string
	System  host.System
	Journal journal.Journal
	// Chown sets the owner of a file; nil means os.Chown.
	Chown func(path string, uid, gid int) error
	// ScriptCommand is the command line that calls script.Main, without the
	// directory. Its program is an absolute path, such as /proc/self/exe.
	ScriptCommand []string
	// InstanceID is given to bootcmd as INSTANCE_ID, as cloud-init does.
	InstanceID string
	// Observe is called with the name of each step as it begins; may be nil.
	Observe func(step string)
}

// Failure is the final failure of an operation. Repeating Apply returns the same
// Failure. It matches ErrInterrupted if a script was interrupted.
type Failure struct{ journal.Outcome }

func (f *Failure) Error() string { return f.Step + ": " + f.Reason }

// Is makes errors.Is(err, ErrInterrupted) true for a recorded interruption.
func (f *Failure) Is(target error) bool {
	return f.Interrupted && target == ErrInterrupted
}

// Apply executes c from the step that the journal names, and returns the warnings.
// Call it again with the same arguments after a restart. Once an outcome is
// recorded, Apply returns it and ignores c.
//
// A *Failure is final. After any other error, including that of ctx, a later call
// continues the operation.
func Apply(ctx context.Context, c *bootstrapdata.Config, opts Options) ([]string, error) {
	e, err := newExecution(opts)
	if err != nil {
		return nil, err
	}
	digest, err := fingerprint(c)
	if err != nil {
		return nil, err
	}
	if e.Progress.Outcome == nil {
		switch p := &e.Progress; {
		case p.Config == "":
			p.Config = digest
		case p.Config != digest:
			return p.Warnings, &Failure{journal.Outcome{Step: "check", Reason: "this is not the bootstrap data that the operation began with, and an operation executes one document only; reset the host to try again"}}
		}
		if err := runSteps(ctx, e, plan(c), opts.Observe); err != nil {
			return e.Progress.Warnings, err
		}
	}
	if !e.Progress.Outcome.Success {
		return e.Progress.Warnings, &Failure{*e.Progress.Outcome}
	}
	return e.Progress.Warnings, nil
}

// runSteps runs the steps that are not done yet. It returns an error only while
// the operation is not over.
func runSteps(ctx context.Context, e *step.Execution, steps []step.Step, observe func(step string)) error {
	p := &e.Progress
	for p.Done < len(steps) {
		s := steps[p.Done]
		if observe != nil {
			observe(s.Title())
		}
		outcome, err := perform(ctx, e, s)
		if err != nil {
			return err
		}
		p.Current = nil
		if outcome != nil {
			p.Outcome = outcome
			return e.Save()
		}
		p.Done++
		if p.Done == len(steps) {
			p.Outcome = &journal.Outcome{Success: true}
		}
		if err := e.Save(); err != nil {
			return err
		}
	}
	return nil
}

// perform runs one step. The outcome is nil unless the step failed finally.
func perform(ctx context.Context, e *step.Execution, s step.Step) (*journal.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("before %s: %w", s.Title(), err)
	}
	p := &e.Progress
	e.Resumed = p.Current != nil
	var err error
	if p.Current == nil {
		in := &journal.Intent{Step: s.Title()}
		if err = s.Prepare(ctx, e, in); err == nil {
			p.Current = in
			if err := e.Save(); err != nil {
				return nil, err
			}
		}
	}
	if err == nil && !p.Current.Skip {
		err = s.Execute(ctx, e, p.Current)
	}
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("during %s: %w", s.Title(), errors.Join(ctx.Err(), err))
	}
	if _, unsaved := errors.AsType[*step.JournalError](err); unsaved {
		return nil, err
	}
	o := &journal.Outcome{
		Step: s.Title(), Interrupted: errors.Is(err, ErrInterrupted),
		Reason: bootstrapdata.Tail(err.Error(), bootstrapdata.MaxTail),
	}
	if failed, ok := errors.AsType[*step.ScriptError](err); ok {
		o.Output = bootstrapdata.Tail(string(failed.Output), bootstrapdata.MaxTail)
	}
	return o, nil
}

func fingerprint(c *bootstrapdata.Config) (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding the configuration: %w", err)
	}
	return host.Digest(text), nil
}

func newExecution(opts Options) (*step.Execution, error) {
	e := &step.Execution{Host: newHost(opts), Journal: opts.Journal, Dir: opts.Dir, ScriptCommand: opts.ScriptCommand, InstanceID: opts.InstanceID}
	var err error
	if e.Progress, err = opts.Journal.Load(); err != nil {
		return nil, fmt.Errorf("loading the progress of the bootstrap: %w", err)
	}
	return e, nil
}
