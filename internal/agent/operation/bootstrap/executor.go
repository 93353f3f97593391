package bootstrap

import (
	"context"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
)

// Job is bootstrap data to execute, and where its progress is recorded.
type Job struct {
	// Folder is the operation's folder in the store.
	Folder string
	Data   []byte
	Format string
	// ID and Hostname are available to templates.
	ID, Hostname string
}

// Executor executes bootstrap data, each part of it once.
type Executor interface {
	// Check validates the data and executes nothing.
	Check(job Job) (warnings []string, err error)
	// Begun reports whether Execute was called for this job before, in this process
	// or an earlier one.
	Begun(job Job) (bool, error)
	// Execute begins or resumes the job. A *Failure is final; after any other error
	// Execute may be called again.
	Execute(ctx context.Context, job Job, progress func(step string)) (warnings []string, err error)
	// Abort kills the parts of the job that still run.
	Abort(folder string) error
	// Output returns what the parts of the job have printed so far.
	Output(folder string) ([]operation.Output, error)
	// RemoveSecrets removes the secrets that Execute stored.
	RemoveSecrets(folder string) error
}

// Failure is the error of bootstrap data that was executed and failed.
type Failure struct {
	Step string
	Err  error
}

func (f *Failure) Error() string { return f.Step + ": " + f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }
