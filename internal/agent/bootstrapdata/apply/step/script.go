package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/script"
)

// Script is the step that runs a script exactly once.
type Script struct {
	Label, Body string
	// Direct is true for a script that names its own interpreter.
	Direct bool
	// Boot is true for bootcmd, whose exit status is ignored.
	Boot bool
	// More is true when other final scripts follow. The last script decides about
	// the success of all.
	More     bool
	Sentinel string
}

// ScriptError is the failure of a script with its output.
type ScriptError struct {
	error
	Output []byte
}

// Unwrap returns the underlying error.
func (e *ScriptError) Unwrap() error { return e.error }

// Title implements Step.
func (s Script) Title() string { return s.Label }

func (s Script) dir(e *Execution) string {
	return filepath.Join(e.Dir, "scripts", strings.ReplaceAll(s.Label, " ", "-"))
}

// Prepare implements Step.
func (s Script) Prepare(_ context.Context, e *Execution, _ *journal.Intent) error {
	if err := os.MkdirAll(filepath.Join(e.Dir, "scripts"), 0o700); err != nil {
		return fmt.Errorf("making the directory for scripts: %w", err)
	}
	spec := script.Spec{Body: s.Body, Direct: s.Direct, WorkDir: "/", Env: host.Environment(os.Environ())}
	if s.Boot && e.InstanceID != "" {
		spec.Env = append(spec.Env, "INSTANCE_ID="+e.InstanceID)
	}
	if s.Sentinel != "" {
		spec.Sentinel = e.RealPath(s.Sentinel)
	}
	return script.Prepare(s.dir(e), spec)
}

// Execute implements Step.
func (s Script) Execute(ctx context.Context, e *Execution, _ *journal.Intent) error {
	result, err := script.Run(ctx, s.dir(e), e.ScriptCommand...)
	if err != nil && !errors.Is(err, script.ErrInterrupted) {
		return err
	}
	output, readErr := script.Output(s.dir(e))
	switch {
	case err != nil:
		return &ScriptError{errors.Join(err, readErr), output}
	case result.Problem != "":
		return fmt.Errorf("running the script: %s", result.Problem)
	case s.Boot && result.ExitCode != 0:
		e.Warn("bootcmd ended with status %d, which does not fail the bootstrap", result.ExitCode)
		return nil
	case s.Boot:
		return nil
	}
	return s.finalError(e, result, output)
}

// finalError returns the error that decides about the operation. It is nil while other
// scripts follow; their failure is recorded and returned after the last script.
func (s Script) finalError(e *Execution, result script.Result, output []byte) error {
	p := &e.Progress
	p.Sentinel = p.Sentinel || result.Sentinel
	var err error
	switch {
	case s.Sentinel != "" && !result.Sentinel:
		err = fmt.Errorf("the script ended with status %d and did not write %s", result.ExitCode, s.Sentinel)
	case result.ExitCode != 0:
		err = fmt.Errorf("the script ended with status %d", result.ExitCode)
	}
	switch {
	case s.More && result.ExitCode != 0:
		e.Warn("%s ended with status %d, and the scripts after it ran all the same", s.Label, result.ExitCode)
		if p.Failed == nil {
			p.Failed = &journal.Outcome{Step: s.Label, Reason: err.Error(), Output: bootstrapdata.Tail(string(output), bootstrapdata.MaxTail)}
		}
		return nil
	case s.More:
		return nil
	case s.Sentinel != "" && p.Sentinel:
		if result.ExitCode != 0 {
			e.Warn("%s wrote %s but ended with status %d", s.Label, s.Sentinel, result.ExitCode)
		}
		return nil
	case err == nil && p.Failed == nil:
		return nil
	case p.Failed != nil:
		return &ScriptError{fmt.Errorf("%s: %s", p.Failed.Step, p.Failed.Reason), []byte(p.Failed.Output)}
	}
	return &ScriptError{err, output}
}
