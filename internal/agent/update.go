package agent

import (
	"context"
	"errors"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ErrRestart ends an agent whose program was replaced: the service manager starts the
// new program.
var ErrRestart = errors.New("the agent's program was replaced, and this process has to end")

// Updater keeps the agent's program at the release that the plan pins. One goroutine at
// a time calls Ensure; any may call the other methods.
type Updater interface {
	// CanUpdate reports whether the program can be replaced.
	CanUpdate() bool
	// Ensure makes release the program. It is called only while no operation runs or is
	// due. again is when it must be called again, 0 for only after a change. The error
	// is ErrRestart, even if ctx ended, or means that the agent cannot continue. changed
	// is called when Report returns something new.
	Ensure(ctx context.Context, release *protocol.AgentRelease, changed func()) (again time.Duration, err error)
	// Confirm ends the trial of a new program: the manager has answered.
	Confirm() error
	// Report is the state of the last update, nil if there was none.
	Report() *protocol.AgentUpdate
}
