package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Steps of a bootstrap, in addition to those of its data.
const (
	stepAdopt    = "adopt"
	stepFetch    = "fetch"
	stepCheck    = "check"
	stepStage    = "stage"
	stepInstall  = "install"
	stepHostname = "hostname"
	stepFiles    = "files"
	stepNode     = "node"
)

// Source provides bootstrap data; see client.Client.Bootstrap.
type Source interface {
	Bootstrap(ctx context.Context, operation string) (data []byte, format string, err error)
}

// Preparer writes what the bootstrap data expects on the host.
type Preparer interface {
	// Prepare writes the files, records the endpoint's VIP, and serves a local endpoint. It
	// may be repeated.
	Prepare(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) error
}

// ProviderIDSetter sets the providerID of the Node that runs on this host.
type ProviderIDSetter interface {
	// SetProviderID returns false if this host has no kubelet, hence no Node.
	SetProviderID(ctx context.Context, providerID string) (isSet bool, err error)
}

// Runner is the operation.Runner of Bootstrap operations.
type Runner struct {
	// Source returns the manager connection's client in use.
	Source     func() Source
	Documents  state.Files
	Executor   Executor
	Platform   platform.Platform
	ProviderID ProviderIDSetter
	// Preparer prepares the host before the first command; nil skips that.
	Preparer Preparer
	// Stager and Installer install a bundle of Kubernetes on a host without its programs; nil
	// skips that.
	Stager    Stager
	Installer Installer
	// Adopter checks Nodes that run already; nil: the host can't be adopted.
	Adopter Adopter
	// Desired is the desired state of the last plan.
	Desired func() protocol.Desired
	Log     *slog.Logger
}

// Run fetches the data, checks all of it, executes it, and sets the Node's
// providerID. For an adoption it checks the Node instead.
func (r *Runner) Run(ctx context.Context, op state.Operation, progress func(string)) (operation.Result, error) {
	if op.Adoption != nil {
		return r.adopt(ctx, op, progress)
	}
	progress(stepFetch)
	job, err := r.job(ctx, op)
	if err != nil {
		return operation.Result{}, err
	}
	progress(stepCheck)
	warnings, err := r.Executor.Check(job)
	if err != nil {
		return operation.Failed(stepCheck, err), nil
	}
	for _, warning := range warnings {
		r.Log.Warn("Bootstrap data", "id", op.ID, "warning", warning)
	}
	if result, err := r.prepareHost(ctx, op, job, progress); result != nil || err != nil {
		return deref(result), err
	}
	executing, err := r.Executor.Execute(ctx, job, progress)
	if failure, ok := errors.AsType[*Failure](err); ok {
		return operation.Failed(failure.Step, failure.Err), nil
	}
	if err != nil {
		return operation.Result{}, err
	}
	warnings = append(warnings, executing...)
	return r.setProviderID(ctx, op, warnings, progress)
}

// Abort kills the scripts that run.
func (r *Runner) Abort(op state.Operation) error { return r.Executor.Abort(op.Folder()) }

// Output returns what the scripts have printed.
func (r *Runner) Output(op state.Operation) ([]operation.Output, error) {
	return r.Executor.Output(op.Folder())
}

// Cleanup removes the data, which contains secrets. The data is never needed again.
func (r *Runner) Cleanup(op state.Operation) error {
	return errors.Join(
		r.Documents.Remove(op.Folder()+"/data"), r.Documents.Remove(desiredDocument(r.Documents, op.Folder()).Name),
		r.Executor.RemoveSecrets(op.Folder()),
	)
}

// job reads the data from the state directory, or fetches it.
func (r *Runner) job(ctx context.Context, op state.Operation) (Job, error) {
	job := Job{Folder: op.Folder(), ID: op.ID, Hostname: op.Hostname}
	format, err := r.Documents.Read(op.Folder() + "/format")
	if err == nil {
		job.Format = string(format)
		job.Data, err = r.Documents.Read(op.Folder() + "/data")
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return job, err
	}
	// An attempt that a crash ended may have had another plan.
	if err := r.Documents.Remove(desiredDocument(r.Documents, op.Folder()).Name); err != nil {
		return Job{}, fmt.Errorf("removing what an interrupted attempt has recorded: %w", err)
	}
	job.Data, job.Format, err = r.Source().Bootstrap(ctx, op.ID)
	if err != nil {
		return Job{}, fmt.Errorf("%w: %w", operation.ErrNothingDone, err)
	}
	if err := r.recordDesired(op); err != nil {
		return Job{}, err
	}
	// The data is written last: if it exists, all other documents do.
	for _, part := range []struct {
		name    string
		content []byte
	}{{"/format", []byte(job.Format)}, {"/data", job.Data}} {
		if err := r.Documents.Write(op.Folder()+part.name, part.content); err != nil {
			return Job{}, &state.WriteError{Name: "the bootstrap data", Err: err}
		}
	}
	return job, nil
}

// prepareHost requires a clean host, installs a bundle if it lacks the programs of
// Kubernetes, sets its host name and writes its files. A bootstrap over the leftovers of
// another node would fail half-way or destroy them.
func (r *Runner) prepareHost(ctx context.Context, op state.Operation, job Job, progress func(string)) (*operation.Result, error) {
	begun, err := r.Executor.Begun(job)
	if err != nil || begun {
		return nil, err
	}
	if result, err := r.requireCleanHost(ctx, job); result != nil || err != nil {
		return result, err
	}
	if result, err := r.installBundle(ctx, progress); result != nil || err != nil {
		return result, err
	}
	if op.Hostname != "" {
		progress(stepHostname)
		if err := r.Platform.SetHostname(ctx, op.Hostname); err != nil {
			result := operation.Failed(stepHostname, err)
			return &result, nil
		}
	}
	return r.writeFiles(ctx, op, progress)
}

// requireCleanHost fails on a host that is not clean, and records the paths that
// exist. It looks only once per operation: after a crash, the files of prepareHost
// itself would look like leftovers.
func (r *Runner) requireCleanHost(ctx context.Context, job Job) (*operation.Result, error) {
	document := operation.PreexistingDocument(r.Documents, job.Folder)
	recorded, err := document.Load()
	if err != nil || recorded != nil {
		return nil, err
	}
	found, err := r.Platform.Cleanliness(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for leftovers of former nodes: %w", err)
	}
	if !found.Clean {
		result := operation.Failed(stepCheck, fmt.Errorf("the host is not clean, reset it first: %s", strings.Join(found.Leftovers, ", ")))
		return &result, nil
	}
	paths, err := r.Platform.PreexistingPaths()
	if err != nil {
		return nil, err
	}
	return nil, document.Save(&operation.Preexisting{Paths: append([]string{}, paths...)})
}

func (r *Runner) setProviderID(ctx context.Context, op state.Operation, notes []string, progress func(string)) (operation.Result, error) {
	if op.ProviderID != "" {
		progress(stepNode)
		isSet, err := r.ProviderID.SetProviderID(ctx, op.ProviderID)
		if err != nil {
			return operation.FailedUnlessStopped(ctx, stepNode, err)
		}
		if !isSet {
			notes = append(notes, "no kubelet was set up, so there is no Node to link")
		}
	}
	return operation.Result{State: protocol.StateSucceeded, Message: strings.Join(notes, "; ")}, nil
}

func deref(result *operation.Result) operation.Result {
	if result == nil {
		return operation.Result{}
	}
	return *result
}
