package fleet

import (
	"context"
	"errors"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// journalDocument is the document with the progress of a job.
const journalDocument = "/journal.json"

// stepSoftware is the bootstrap step that a Software executes.
const stepSoftware = "software"

var (
	errInterrupted = errors.New("it was cut off by the end of the boot in which it ran, and is not run again")
	errOnRequest   = errors.New("it fails because a fault was asked for")
)

// journal is the progress of a job on disk.
type journal struct {
	// BootID is the boot in which the job was started; blank before.
	BootID string `json:"bootID,omitempty"`
	Done   bool   `json:"done,omitempty"`
	// Failure is the error of a failed job.
	Failure string `json:"failure,omitempty"`
}

// executor is bootstrap.Executor and operation.Bootstraps: it hands bootstrap data to the
// Software. A job runs beside the agent, as scripts do on a real host, and ends with
// the boot.
type executor struct {
	boot  *boot
	mount *mount
}

// job is a bootstrap that runs.
type job struct {
	folder string
	cancel context.CancelFunc
	// over is closed when the job has ended; err is valid then.
	over chan struct{}
	err  error
}

func (e *executor) journal(folder string) state.Document[journal] {
	return state.Document[journal]{Files: e.mount, Name: folder + journalDocument}
}

// Check is bootstrap.Executor's.
func (e *executor) Check(job bootstrap.Job) ([]string, error) {
	if software := e.boot.host.fleet.settings.Software; software != nil {
		return nil, software.Check(job.Data, job.Format)
	}
	return nil, nil
}

// Begun is bootstrap.Executor's.
func (e *executor) Begun(job bootstrap.Job) (bool, error) {
	at, err := e.journal(job.Folder).Load()
	return at.BootID != "", err
}

// Execute is bootstrap.Executor's.
func (e *executor) Execute(ctx context.Context, task bootstrap.Job, progress func(string)) ([]string, error) {
	document := e.journal(task.Folder)
	at, err := document.Load()
	if err != nil {
		return nil, err
	}
	switch {
	case at.Done:
	case at.BootID != "" && at.BootID != e.boot.id:
		at.Done, at.Failure = true, errInterrupted.Error()
	default:
		if at.BootID == "" {
			at.BootID = e.boot.id
			if err := document.Save(at); err != nil {
				return nil, err
			}
			if err := e.mount.change(func(d *disk) { d.installed = true }); err != nil {
				return nil, err
			}
		}
		running := e.boot.runJob(task, progress) //nolint:contextcheck // it outlives the agent, and ends with the boot
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-running.over:
		}
		at.Done = true
		if running.err != nil {
			at.Failure = running.err.Error()
		}
	}
	if err := document.Save(at); err != nil {
		return nil, err
	}
	if at.Failure != "" {
		return nil, &bootstrap.Failure{Step: stepSoftware, Err: errors.New(at.Failure)}
	}
	return nil, nil
}

// runJob starts a job, or returns the running one after a crash of the agent.
func (b *boot) runJob(task bootstrap.Job, progress func(string)) *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.job != nil && b.job.folder == task.Folder {
		return b.job
	}
	ctx, cancel := context.WithCancel(b.ctx)
	next := &job{folder: task.Folder, cancel: cancel, over: make(chan struct{})}
	b.job = next
	b.running.Go(func() {
		defer close(next.over)
		defer cancel()
		next.err = b.bootstrap(ctx, task, progress)
	})
	return next
}

// bootstrap executes data with the Software, subject to the faults of the fleet.
func (b *boot) bootstrap(ctx context.Context, task bootstrap.Job, progress func(string)) error {
	f := b.host.fleet
	faults := f.faults.Load()
	if delay := f.upTo(faults.SlowBootstraps); delay > 0 {
		progress("waiting, as was asked for")
		if err := (retry.System{}).Wait(ctx, delay); err != nil {
			return err
		}
	}
	if f.chance(faults.FailingBootstraps) {
		return errOnRequest
	}
	if software := f.settings.Software; software != nil {
		b.software.Lock()
		defer b.software.Unlock()
		if err := software.Bootstrap(ctx, b.host.machine(), task.Data, task.Format, progress); err != nil {
			return err
		}
	}
	b.host.count(func(d *Done) { d.Bootstraps++ })
	return nil
}

// endJob ends the running job, if any, and waits for its end.
func (b *boot) endJob() {
	b.mu.Lock()
	running := b.job
	b.mu.Unlock()
	if running != nil {
		running.cancel()
		<-running.over
	}
}

// Abort is bootstrap.Executor's.
func (e *executor) Abort(string) error {
	e.boot.endJob()
	return nil
}

// Output is bootstrap.Executor's. The Software prints nothing.
func (e *executor) Output(string) ([]operation.Output, error) { return nil, nil }

// RemoveSecrets is bootstrap.Executor's: the data is the agent's to drop, and no copy was made.
func (e *executor) RemoveSecrets(string) error { return nil }

// Executed is operation.Bootstraps's.
func (e *executor) Executed() ([]string, error) { return e.mount.endingIn(journalDocument), nil }

// Undo is operation.Bootstraps's: a reset has removed it all.
func (e *executor) Undo(context.Context, string) error { return nil }
