package fleet

import (
	"context"
	"errors"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// journalDocument is where a job's folder has its progress.
const journalDocument = "/journal.json"

// stepSoftware is the step of a bootstrap that a Software executes.
const stepSoftware = "software"

var (
	errInterrupted = errors.New("it was cut off by the end of the boot in which it ran, and is not run again")
	errOnRequest   = errors.New("it fails because a fault was asked for")
)

// journal is how far a job is, on disk.
type journal struct {
	// BootID is the boot in which it was begun; blank before.
	BootID string `json:"bootID,omitempty"`
	Done   bool   `json:"done,omitempty"`
	// Failure is why it failed.
	Failure string `json:"failure,omitempty"`
}

// executor is agent.Executor and agent.Undoer: it hands bootstrap data to the
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
	// over is closed when it has ended; err is then how.
	over chan struct{}
	err  error
}

func (e *executor) journal(folder string) state.Document[journal] {
	return state.Document[journal]{Files: e.mount, Name: folder + journalDocument}
}

// Check is agent.Executor's.
func (e *executor) Check(job agent.Job) ([]string, error) {
	if software := e.boot.host.fleet.settings.Software; software != nil {
		return nil, software.Check(job.Data, job.Format)
	}
	return nil, nil
}

// Begun is agent.Executor's.
func (e *executor) Begun(job agent.Job) (bool, error) {
	at, err := e.journal(job.Folder).Load()
	return at.BootID != "", err
}

// Execute is agent.Executor's.
func (e *executor) Execute(ctx context.Context, task agent.Job, progress func(string)) ([]string, error) {
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
		return nil, &agent.Failure{Step: stepSoftware, Err: errors.New(at.Failure)}
	}
	return nil, nil
}

// runJob begins a job, or finds it running: the agent that began it has crashed.
func (b *boot) runJob(task agent.Job, progress func(string)) *job {
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

// bootstrap has the Software execute data, with the faults of the fleet.
func (b *boot) bootstrap(ctx context.Context, task agent.Job, progress func(string)) error {
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

// endJob ends the job that runs, if one does, and waits for that.
func (b *boot) endJob() {
	b.mu.Lock()
	running := b.job
	b.mu.Unlock()
	if running != nil {
		running.cancel()
		<-running.over
	}
}

// Abort is agent.Executor's.
func (e *executor) Abort(string) error {
	e.boot.endJob()
	return nil
}

// Settle is agent.Executor's: the data is the agent's to drop, and no copy was made.
func (e *executor) Settle(string) error { return nil }

// Executed is agent.Undoer's.
func (e *executor) Executed() ([]string, error) { return e.mount.endingIn(journalDocument), nil }

// Undo is agent.Undoer's: a reset has removed it all.
func (e *executor) Undo(context.Context, string) error { return nil }
