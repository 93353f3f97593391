package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// ErrInterrupted means that a script started and did not end, because the host lost
// power or the runner was killed. Its effects are unknown, so it is not run again.
var ErrInterrupted = errors.New("the script was interrupted, by a reboot or by a kill, and is not run twice; reset the host to try again")

// Spec is a script to run.
type Spec struct {
	// Body is the whole script; it is passed to /bin/sh as a file.
	Body string `json:"-"`
	// Direct runs the file itself instead, by the program that its first line
	// names.
	Direct bool `json:"direct,omitempty"`
	// Env is the whole environment, "NAME=value" each.
	Env []string `json:"env"`
	// WorkDir is where the script starts.
	WorkDir string `json:"workDir"`
	// Sentinel is a file whose presence at the script's end is recorded, or "".
	Sentinel string `json:"sentinel,omitempty"`
}

// Result is the result of a script.
type Result struct {
	// ExitCode is the script's own, or 128 plus the signal that ended it.
	ExitCode int `json:"exitCode"`
	// Sentinel reports whether Spec.Sentinel existed when the script ended. It is
	// recorded because a reboot empties /run.
	Sentinel bool `json:"sentinel"`
	// Problem says why the script could not be started at all.
	Problem string `json:"problem,omitempty"`
}

const (
	scriptFile  = "script"
	specFile    = "spec.json"
	lockFile    = "lock"
	startedFile = "started"
	outputFile  = "output"
	resultFile  = "result.json"
	logFile     = "runner.log"
)

// Prepare writes a script to dir, which is made with mode 0700 if missing. It may be
// repeated until the first call of Run.
func Prepare(dir string, spec Spec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the directory of a script: %w", err)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encoding the script's environment: %w", err)
	}
	return errors.Join(
		writeProgram(filepath.Join(dir, scriptFile), spec.Body),
		durable.WriteFile(filepath.Join(dir, specFile), text, 0o600),
		durable.SyncDir(filepath.Dir(dir)),
	)
}

// writeProgram writes a file that can be executed at once. A child that is started
// meanwhile would inherit the open file, and execve(2) fails with ETXTBSY while a file is
// open for writing.
func writeProgram(path, body string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return durable.WriteFile(path, []byte(body), 0o700)
}

// IsStarted reports whether the script in dir was started, once and for all.
func IsStarted(dir string) (bool, error) { return hasStarted(dir) }

// Output returns what the script in dir printed: all of it, or its beginning
// and its end. It is empty when the script printed nothing yet.
func Output(dir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, outputFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the output of a script: %w", err)
	}
	return text, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// readResult returns nil when there is no result yet.
func readResult(dir string) (*Result, error) {
	text, err := os.ReadFile(filepath.Join(dir, resultFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the result of a script: %w", err)
	}
	r := &Result{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("decoding the result of a script: %w", err)
	}
	return r, nil
}
