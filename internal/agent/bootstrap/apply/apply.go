package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/script"
)

// ErrInterrupted is matched by a Failure when a power cut or a kill cut a
// script off. It is never run again.
var ErrInterrupted = script.ErrInterrupted

// System runs programs of the host.
type System interface {
	// Run runs a program to its end and returns what it wrote to standard
	// output. A status other than 0 is an error that quotes standard error.
	Run(ctx context.Context, command Command) (string, error)
}

// Command is a program with its arguments; no shell is involved.
type Command struct {
	Args  []string
	Stdin string
}

// Options are what Apply and Undo work with.
type Options struct {
	// Dir is the operation's directory, 0700 and on disk. It holds scripts,
	// their output, and copies of replaced files.
	Dir string
	// Root is "/", or a directory that stands for it in tests.
	Root    string
	System  System
	Journal Journal
	// Chown sets the owner of a file; nil means os.Chown.
	Chown func(path string, uid, gid int) error
	// Runner is the command line that calls script.Main, without the directory;
	// its program is an absolute path, such as /proc/self/exe.
	Runner []string
	// InstanceID is given to bootcmd as INSTANCE_ID, as cloud-init does.
	InstanceID string
	// Observe is called with the name of each step as it begins; may be nil.
	Observe func(step string)
}

// Failure is an operation that is over and did not succeed. Repeating Apply
// returns the same again. It matches ErrInterrupted where a script was cut off.
type Failure struct{ Outcome } //nolint:errname // it is an outcome in the first place

func (f *Failure) Error() string { return f.Step + ": " + f.Reason }

// Is makes errors.Is(err, ErrInterrupted) work on what was recorded.
func (f *Failure) Is(target error) bool {
	return f.Interrupted && target == ErrInterrupted
}

// Apply carries out c, from the step that the journal names, and returns the
// warnings. It is to be called again with the same arguments after a restart,
// and returns the recorded outcome once there is one, whatever c is by then.
//
// A *Failure is final. Every other error, that of ctx among them, leaves the
// operation where it is, to be gone on with.
func Apply(ctx context.Context, c *bootstrap.Config, opts Options) ([]string, error) {
	h, err := newHost(opts)
	if err != nil {
		return nil, err
	}
	digest, err := fingerprint(c)
	if err != nil {
		return nil, err
	}
	if h.progress.Outcome == nil {
		switch p := &h.progress; {
		case p.Config == "":
			p.Config = digest
		case p.Config != digest:
			return p.Warnings, &Failure{Outcome{Step: "check", Reason: "this is not the bootstrap data that the operation began with, and an operation executes one document only; reset the host to try again"}}
		}
		if err := h.apply(ctx, plan(c)); err != nil {
			return h.progress.Warnings, err
		}
	}
	if !h.progress.Outcome.Success {
		return h.progress.Warnings, &Failure{*h.progress.Outcome}
	}
	return h.progress.Warnings, nil
}

// apply returns an error only when the operation is not over.
func (h *host) apply(ctx context.Context, steps []step) error {
	p := &h.progress
	for p.Done < len(steps) {
		s := steps[p.Done]
		if h.opts.Observe != nil {
			h.opts.Observe(s.name())
		}
		outcome, err := h.perform(ctx, s)
		if err != nil {
			return err
		}
		p.Current = nil
		if outcome != nil {
			p.Outcome = outcome
			return h.save()
		}
		p.Done++
		if p.Done == len(steps) {
			p.Outcome = &Outcome{Success: true}
		}
		if err := h.save(); err != nil {
			return err
		}
	}
	return nil
}

// perform does one step. The outcome is nil unless the step failed for good.
func (h *host) perform(ctx context.Context, s step) (*Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("before %s: %w", s.name(), err)
	}
	p := &h.progress
	h.resumed = p.Current != nil
	var err error
	if p.Current == nil {
		in := &Intent{Step: s.name()}
		if err = s.prepare(ctx, h, in); err == nil {
			p.Current = in
			if err := h.save(); err != nil {
				return nil, err
			}
		}
	}
	if err == nil && !p.Current.Skip {
		err = s.execute(ctx, h, p.Current)
	}
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("during %s: %w", s.name(), errors.Join(ctx.Err(), err))
	}
	if _, unsaved := errors.AsType[*journalError](err); unsaved {
		return nil, err
	}
	o := &Outcome{
		Step: s.name(), Interrupted: errors.Is(err, ErrInterrupted),
		Reason: bootstrap.Tail(err.Error(), bootstrap.MaxTail),
	}
	if failed, ok := errors.AsType[*scriptError](err); ok {
		o.Output = bootstrap.Tail(string(failed.output), bootstrap.MaxTail)
	}
	return o, nil
}

func fingerprint(c *bootstrap.Config) (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding the configuration: %w", err)
	}
	return digest(text), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
