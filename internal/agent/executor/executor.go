package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/apply"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// journalFile is the document that holds an operation's progress.
const journalFile = "/journal.json"

// applyDir is the directory of scripts, their output and replaced files.
const applyDir = "/apply"

// Executor executes bootstrap data on this host.
type Executor struct {
	// Files is the agent's store; Dir is the directory that it is in.
	Files state.Files
	Dir   string
	// Root is "/", or a directory that stands for it.
	Root   string
	System apply.System
	// Runner is the command line that runs scripts.
	Runner []string
}

// Variables are what a jinja template in bootstrap data may use.
func Variables(id, hostname string) bootstrap.Variables {
	names := map[string]any{
		"instance_id": id, "instance-id": id,
		"local_hostname": hostname, "local-hostname": hostname, "hostname": hostname,
	}
	return bootstrap.NewVariables(names, names)
}

// Check parses the data.
func (e *Executor) Check(job agent.Job) ([]string, error) {
	_, warnings, err := parse(job)
	return warnings, err
}

func parse(job agent.Job) (*bootstrap.Config, []string, error) {
	config, found, err := bootstrap.Parse(job.Data, job.Format, Variables(job.ID, job.Hostname))
	if err != nil {
		return nil, nil, fmt.Errorf("checking the bootstrap data, nothing of which was executed: %w", err)
	}
	warnings := make([]string, 0, len(found))
	for _, warning := range found {
		warnings = append(warnings, warning.String())
	}
	return config, warnings, nil
}

// Begun reports whether the job was executed, at least in part.
func (e *Executor) Begun(job agent.Job) (bool, error) {
	progress, err := e.journal(job.Folder).Load()
	return progress.Config != "", err
}

// Execute begins the job or goes on with it.
func (e *Executor) Execute(ctx context.Context, job agent.Job, progress func(string)) ([]string, error) {
	config, _, err := parse(job)
	if err != nil {
		return nil, &agent.Failure{Step: "parse", Err: err}
	}
	options, err := e.options(job.Folder)
	if err != nil {
		return nil, err
	}
	options.InstanceID, options.Observe = job.ID, progress
	warnings, err := apply.Apply(ctx, config, options)
	if failure, ok := errors.AsType[*apply.Failure](err); ok {
		return warnings, &agent.Failure{Step: failure.Step, Err: reason(failure)}
	}
	return warnings, err
}

// maxReason is how much of a message is for why a step failed, where it printed
// something too.
const maxReason = protocol.MaxMessageBytes / 2

// reason joins why a step failed and what it printed last. Both fit into one
// message: a longer one would be cut at its end, where what matters is.
func reason(failure *apply.Failure) error {
	output := strings.TrimSpace(failure.Output)
	if output == "" {
		return errors.New(failure.Reason)
	}
	why := bootstrap.Tail(failure.Reason, maxReason) + ": "
	return errors.New(why + bootstrap.Tail(output, protocol.MaxMessageBytes-len(why)))
}

// Settle drops the scripts, which may hold secrets. What they printed and the
// files that were replaced stay, for people and for the reset.
func (e *Executor) Settle(folder string) error { return apply.ShredSecrets(e.applied(folder)) }

// Abort kills the job's scripts that run, and what they started. They are found
// by their runners, each of which leads a session of its own; units that they
// started are found in the journal.
func (e *Executor) Abort(folder string) error {
	marks, err := filepath.Glob(filepath.Join(e.applied(folder), "scripts", "*", "started"))
	if err != nil {
		return fmt.Errorf("looking for scripts: %w", err)
	}
	var failures []error
	for _, mark := range marks {
		text, err := os.ReadFile(mark)
		if err != nil {
			return fmt.Errorf("looking for scripts: %w", err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || !isRunner(pid, filepath.Dir(mark)) {
			continue // it is over, and the number is somebody else's
		}
		if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			failures = append(failures, fmt.Errorf("ending the script in %s: %w", filepath.Dir(mark), err))
		}
		if err := e.abortUnits(folder); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// abortTime is how long systemd is given to kill a unit.
const abortTime = 30 * time.Second

// abortUnits kills what the script had systemd start.
func (e *Executor) abortUnits(folder string) error {
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

// isRunner reports whether a process runs the script in dir.
func isRunner(pid int, dir string) bool {
	command, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.HasSuffix(string(command), "\x00"+dir+"\x00")
}

// Executed lists the folders of the jobs that were begun, latest first.
func (e *Executor) Executed() ([]string, error) {
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

// Undo takes back what the job did.
func (e *Executor) Undo(ctx context.Context, folder string) error {
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

func (e *Executor) applied(folder string) string {
	return filepath.Join(e.Dir, filepath.FromSlash(folder+applyDir))
}

func (e *Executor) journal(folder string) state.Document[apply.Progress] {
	return state.Document[apply.Progress]{Files: e.Files, Name: folder + journalFile}
}

func (e *Executor) options(folder string) (apply.Options, error) {
	dir := e.applied(folder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return apply.Options{}, fmt.Errorf("making the operation's directory: %w", err)
	}
	return apply.Options{
		Dir: dir, Root: e.Root, System: e.System, Journal: e.journal(folder), Runner: e.Runner,
	}, nil
}
