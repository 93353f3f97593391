package step

import (
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/journal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/redact"
)

// Execution is one run of the steps: the host that they change, and the progress
// that the journal keeps.
type Execution struct {
	*host.Host
	Journal  journal.Journal
	Progress journal.Progress
	// Dir is the operation's directory.
	Dir string
	// ScriptCommand is the command line that runs a script, without its directory.
	ScriptCommand []string
	// InstanceID is given to bootcmd.
	InstanceID string
	// Resumed is true while a step is executed that an earlier process began.
	Resumed bool
}

// JournalError is an error of the journal, such as a full disk. It does not fail the
// document.
type JournalError struct{ error }

// Unwrap returns the underlying error.
func (e *JournalError) Unwrap() error { return e.error }

// Save saves the progress in the journal.
func (e *Execution) Save() error {
	if err := e.Journal.Save(e.Progress); err != nil {
		return &JournalError{fmt.Errorf("saving the progress of the bootstrap: %w", err)}
	}
	return nil
}

// Manifest returns the list of changes, to add to.
func (e *Execution) Manifest() *journal.Manifest { return &e.Progress.Manifest }

// Warn records a warning, and only once if its step is repeated.
func (e *Execution) Warn(format string, args ...any) {
	text, _ := redact.ForOutput().Text(fmt.Sprintf(format, args...))
	e.Progress.Warnings = journal.AddOnce(e.Progress.Warnings, text)
}
