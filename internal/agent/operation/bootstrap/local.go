package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// journalFile is the document with an operation's progress.
const journalFile = "/journal.json"

// applyDir is the directory of scripts, their output and replaced files.
const applyDir = "/apply"

// LocalExecutor is the Executor of this host, and the operation.Bootstraps. It parses
// bootstrap data with package bootstrapdata and executes it with package apply.
type LocalExecutor struct {
	// Files has the documents of operations; Dir is its directory.
	Files state.Files
	Dir   string
	// Root is "/", or the directory that replaces it.
	Root   string
	System host.System
	// Chown sets the owner of a file; nil means os.Chown.
	Chown func(path string, uid, gid int) error
	// ScriptCommand is the command line that runs scripts.
	ScriptCommand []string
}

// Check parses the data.
func (e *LocalExecutor) Check(job Job) ([]string, error) {
	_, warnings, err := e.parse(job)
	return warnings, err
}

func (e *LocalExecutor) parse(job Job) (*bootstrapdata.Config, []string, error) {
	vars, err := Variables(e.Root, job.ID, job.Hostname)
	if err != nil {
		return nil, nil, err
	}
	config, found, err := parser.Parse(job.Data, job.Format, vars)
	if err != nil {
		return nil, nil, fmt.Errorf("checking the bootstrap data, nothing of which was executed: %w", err)
	}
	warnings := make([]string, 0, len(found))
	for _, warning := range found {
		warnings = append(warnings, warning.String())
	}
	return config, warnings, nil
}

// Begun reports whether the execution of the job was begun.
func (e *LocalExecutor) Begun(job Job) (bool, error) {
	progress, err := e.journal(job.Folder).Load()
	return progress.Config != "", err
}

// Execute begins or resumes the job.
func (e *LocalExecutor) Execute(ctx context.Context, job Job, progress func(string)) ([]string, error) {
	config, _, err := e.parse(job)
	if err != nil {
		return nil, &Failure{Step: "parse", Err: err}
	}
	options, err := e.options(job.Folder)
	if err != nil {
		return nil, err
	}
	options.InstanceID, options.Observe = job.ID, progress
	warnings, err := apply.Apply(ctx, config, options)
	if failure, ok := errors.AsType[*apply.Failure](err); ok {
		return warnings, &Failure{Step: failure.Step, Err: reason(failure)}
	}
	return warnings, err
}

// maxReason limits the reason in the message of a failed step that has output.
const maxReason = protocol.MaxMessageBytes / 2

// reason joins the reason of a failure and the end of the step's output. The result fits
// into a message: a longer one would lose its end, the most useful part.
func reason(failure *apply.Failure) error {
	output := strings.TrimSpace(failure.Output)
	if output == "" {
		return errors.New(failure.Reason)
	}
	why := bootstrapdata.Tail(failure.Reason, maxReason) + ": "
	return errors.New(why + bootstrapdata.Tail(output, protocol.MaxMessageBytes-len(why)))
}

// WriteFiles writes the files of a configuration, and nothing else of it. It records them as if the job had
// written them, so that Undo reverts them also on a host that has not executed the job. It may be repeated.
func (e *LocalExecutor) WriteFiles(ctx context.Context, folder string, config *bootstrapdata.Config) error {
	options, err := e.options(folder)
	if err != nil {
		return err
	}
	return apply.WriteFiles(ctx, config, options)
}

// RemoveSecrets removes the scripts, which may contain secrets. Their output and the
// replaced files remain, for people and for the reset.
func (e *LocalExecutor) RemoveSecrets(folder string) error {
	return apply.ShredSecrets(e.applied(folder))
}

// Abort kills the running scripts of the job and their children. Each script's runner
// leads a session of its own, by which Abort finds it. The journal lists the units that
// scripts started.
func (e *LocalExecutor) Abort(folder string) error {
	marks, err := filepath.Glob(filepath.Join(e.applied(folder), "scripts", "*", "started"))
	if err != nil {
		return fmt.Errorf("looking for scripts: %w", err)
	}
	var failures []error
	for _, mark := range marks {
		killed, err := script.Kill(filepath.Dir(mark))
		if err != nil {
			failures = append(failures, err)
		}
		if !killed {
			continue
		}
		if err := e.abortUnits(folder); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// abortTime limits how long systemd takes to kill units.
const abortTime = 30 * time.Second

// abortUnits kills the units that scripts started.
func (e *LocalExecutor) abortUnits(folder string) error {
	progress, err := e.journal(folder).Load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTime)
	defer cancel()
	if err := apply.Abort(ctx, progress, apply.Options{Root: e.Root, System: e.System}); err != nil {
		return fmt.Errorf("ending units of the bootstrap data: %w", err)
	}
	return nil
}

// Executed lists the folders of the jobs that were begun, latest first.
func (e *LocalExecutor) Executed() ([]string, error) {
	journals, err := filepath.Glob(filepath.Join(e.Dir, "operations", "*"+journalFile))
	if err != nil {
		return nil, fmt.Errorf("looking for earlier bootstraps: %w", err)
	}
	type begun struct {
		folder string
		at     int64
	}
	var found []begun
	for _, journal := range journals {
		info, err := os.Stat(journal)
		if err != nil {
			return nil, fmt.Errorf("looking for earlier bootstraps: %w", err)
		}
		folder, err := filepath.Rel(e.Dir, filepath.Dir(journal))
		if err != nil {
			return nil, fmt.Errorf("looking for earlier bootstraps: %w", err)
		}
		found = append(found, begun{filepath.ToSlash(folder), info.ModTime().UnixNano()})
	}
	slices.SortFunc(found, func(a, b begun) int { return cmp.Compare(b.at, a.at) })
	folders := make([]string, 0, len(found))
	for _, one := range found {
		folders = append(folders, one.folder)
	}
	return folders, nil
}

// Undo reverts what the job did.
func (e *LocalExecutor) Undo(ctx context.Context, folder string) error {
	progress, err := e.journal(folder).Load()
	if err != nil {
		return err
	}
	options, err := e.options(folder)
	if err != nil {
		return err
	}
	if err := apply.Undo(ctx, progress.Manifest, options); err != nil {
		return fmt.Errorf("undoing what the bootstrap data did: %w", err)
	}
	return nil
}

func (e *LocalExecutor) applied(folder string) string {
	return filepath.Join(e.Dir, filepath.FromSlash(folder+applyDir))
}

func (e *LocalExecutor) journal(folder string) state.Document[journal.Progress] {
	return state.Document[journal.Progress]{Files: e.Files, Name: folder + journalFile}
}

func (e *LocalExecutor) options(folder string) (apply.Options, error) {
	dir := e.applied(folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return apply.Options{}, fmt.Errorf("making the operation's directory: %w", err)
	}
	return apply.Options{
		Dir: dir, Root: e.Root, System: e.System, Chown: e.Chown, Journal: e.journal(folder), ScriptCommand: e.ScriptCommand,
	}, nil
}
