package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of a bootstrap beside those of its document.
const (
	stepFetch = "fetch"
	stepCheck = "check"
	stepName  = "hostname"
	stepFiles = "files"
	stepNode  = "node"
)

// Source hands out bootstrap data.
type Source interface {
	Bootstrap(ctx context.Context, operation string) (data []byte, format string, err error)
}

// Job is bootstrap data to execute, and where to keep the progress.
type Job struct {
	// Folder is the operation's folder in the store.
	Folder string
	Data   []byte
	Format string
	// ID and Hostname are what templates may ask for.
	ID, Hostname string
}

// Executor executes bootstrap data, each part of it once.
type Executor interface {
	// Check reports what is wrong with the data. Nothing is done.
	Check(job Job) (warnings []string, err error)
	// Begun reports whether Execute was called for this job before, in this
	// process or an earlier one.
	Begun(job Job) (bool, error)
	// Execute begins or resumes. A *Failure is final; after any other error it
	// may be called again.
	Execute(ctx context.Context, job Job, progress func(step string)) (warnings []string, err error)
	// Abort ends what of the job still runs.
	Abort(folder string) error
	// Settle drops the secrets that Execute kept.
	Settle(folder string) error
}

// Failure is bootstrap data that was executed and did not succeed.
type Failure struct {
	Step string
	Err  error
}

func (f *Failure) Error() string { return f.Step + ": " + f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Surveyor finds out what a bootstrap may add to.
type Surveyor interface {
	// Present are the paths that a node adds to and that are on the host.
	Present() ([]string, error)
}

// Bootstrap runs Bootstrap operations.
type Bootstrap struct {
	Source    func() Source
	Documents state.Files
	Executor  Executor
	Observer  Observer
	Surveyor  Surveyor
	Namer     Namer
	Linker    Linker
	// Keeper puts what the plan desires beside the bootstrap data in place before
	// the first command; nil means that nothing does.
	Keeper Preparer
	// Desired is what the last plan desires.
	Desired func() protocol.Desired
	Log     *slog.Logger
}

// Run fetches the data, checks all of it, executes it, and gives the Node its
// providerID.
func (b *Bootstrap) Run(ctx context.Context, op state.Operation, progress func(string)) (Result, error) {
	progress(stepFetch)
	job, err := b.job(ctx, op)
	if err != nil {
		return Result{}, err
	}
	progress(stepCheck)
	warnings, err := b.Executor.Check(job)
	if err != nil {
		return failed(stepCheck, err), nil
	}
	for _, warning := range warnings {
		b.Log.Warn("Bootstrap data", "id", op.ID, "warning", warning)
	}
	if result, err := b.prepare(ctx, op, job, progress); result != nil || err != nil {
		return deref(result), err
	}
	executing, err := b.Executor.Execute(ctx, job, progress)
	if failure, ok := errors.AsType[*Failure](err); ok {
		return failed(failure.Step, failure.Err), nil
	}
	if err != nil {
		return Result{}, err
	}
	warnings = append(warnings, executing...)
	return b.link(ctx, op, warnings, progress)
}

// Abort ends the scripts that run.
func (b *Bootstrap) Abort(op state.Operation) error { return b.Executor.Abort(op.Folder()) }

// Settle shreds the data: it holds secrets, and is never needed again.
func (b *Bootstrap) Settle(op state.Operation) error {
	return errors.Join(
		b.Documents.Remove(op.Folder()+"/data"), b.Documents.Remove(beside(b.Documents, op.Folder()).Name), b.Executor.Settle(op.Folder()),
	)
}

// job reads the data from the host, or fetches it once.
func (b *Bootstrap) job(ctx context.Context, op state.Operation) (Job, error) {
	job := Job{Folder: op.Folder(), ID: op.ID, Hostname: op.Hostname}
	format, err := b.Documents.Read(op.Folder() + "/format")
	if err == nil {
		job.Format = string(format)
		job.Data, err = b.Documents.Read(op.Folder() + "/data")
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return job, err
	}
	job.Data, job.Format, err = b.Source().Bootstrap(ctx, op.ID)
	if err != nil {
		return Job{}, fmt.Errorf("%w: %w", ErrNothingDone, err)
	}
	if err := b.rememberBeside(op); err != nil {
		return Job{}, err
	}
	// The data comes last: where it is, all else is.
	for _, part := range []struct {
		name    string
		content []byte
	}{{"/format", []byte(job.Format)}, {"/data", job.Data}} {
		if err := b.Documents.Write(op.Folder()+part.name, part.content); err != nil {
			return Job{}, &state.WriteError{Name: "the bootstrap data", Err: err}
		}
	}
	return job, nil
}

// prepare makes sure that the host is clean and has its name and its files. A
// bootstrap over the remains of another node would fail half-way, or destroy what
// they are.
func (b *Bootstrap) prepare(ctx context.Context, op state.Operation, job Job, progress func(string)) (*Result, error) {
	begun, err := b.Executor.Begun(job)
	if err != nil || begun {
		return nil, err
	}
	if result, err := b.look(ctx, job); result != nil || err != nil {
		return result, err
	}
	if op.Hostname != "" {
		progress(stepName)
		if err := b.Namer.SetHostname(ctx, op.Hostname); err != nil {
			result := failed(stepName, err)
			return &result, nil
		}
	}
	return b.putBeside(ctx, op, progress)
}

// look refuses a host that is not clean, and remembers what was there. It does so
// once: what prepare did itself before a crash is no leftover.
func (b *Bootstrap) look(ctx context.Context, job Job) (*Result, error) {
	looked, err := snapshot(b.Documents, job.Folder).Load()
	if err != nil || looked != nil {
		return nil, err
	}
	found, err := b.Observer.Cleanliness(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for leftovers of former nodes: %w", err)
	}
	if !found.Clean {
		result := failed(stepCheck, fmt.Errorf("the host is not clean, reset it first: %s", strings.Join(found.Leftovers, ", ")))
		return &result, nil
	}
	present, err := b.Surveyor.Present()
	if err != nil {
		return nil, err
	}
	return nil, snapshot(b.Documents, job.Folder).Save(&before{Present: append([]string{}, present...)})
}

func (b *Bootstrap) link(ctx context.Context, op state.Operation, notes []string, progress func(string)) (Result, error) {
	if op.ProviderID != "" {
		progress(stepNode)
		linked, err := b.Linker.Link(ctx, op.ProviderID)
		if err != nil {
			if ctx.Err() != nil {
				return Result{}, err
			}
			return failed(stepNode, err), nil
		}
		if !linked {
			notes = append(notes, "no kubelet was set up, so there is no Node to link")
		}
	}
	return Result{State: protocol.StateSucceeded, Message: strings.Join(notes, "; ")}, nil
}

func failed(step string, err error) Result {
	return Result{State: protocol.StateFailed, Step: step, Message: err.Error()}
}

func deref(result *Result) Result {
	if result == nil {
		return Result{}
	}
	return *result
}
