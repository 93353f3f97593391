package elemental

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// failureWait is how long a recovery system whose reset failed waits before it
// boots the active one. Should that not come up either, the next attempt is here.
const failureWait = time.Minute

// Recovery is what the agent does in the recovery system: the reset that the
// active system's agent began, and nothing else. It talks to no manager; the agent
// in the active system reports what came of it.
type Recovery struct {
	System System
	CLI    CLI
	// StateDir is the agent's state directory, on the OEM partition.
	StateDir string
	Host     Rebooter
	Commands host.Commander
	Clock    retry.Clock
	Log      *slog.Logger
}

// outcome is what came of a reset in the recovery system.
type outcome struct {
	Failure string `json:"failure,omitempty"`
}

func outcomeDocument(files state.Files, op state.Operation) state.Document[outcome] {
	return state.Document[outcome]{Files: files, Name: op.Folder() + "/outcome.json"}
}

// Run resets the host and reboots it. Where no reset was begun it waits for the end
// of ctx: a person has booted the recovery system.
func (r *Recovery) Run(ctx context.Context) error {
	op, found, err := r.wanted()
	if err != nil {
		return err
	}
	if !found {
		r.Log.Info("This is the recovery system, and no reset was begun: there is nothing to do here")
		<-ctx.Done()
		return nil
	}
	r.Log.Info("Resetting this host", "id", op.ID, "cluster", op.ClusterName, "machine", op.MachineName)
	// Nothing on the OEM partition is open now: the CLI unmounts it.
	if err := r.CLI.run(ctx, nil, "reset", "--reset-persistent"); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent is being stopped; the next start resets again
		}
		r.Log.Error("The reset failed", "error", err)
		if err := r.note(ctx, op, err); err != nil {
			r.Log.Error("Could not note why the reset failed", "error", err)
		}
		// Where the wait is cut short, so is the reboot.
		_ = r.Clock.Wait(ctx, failureWait)
	}
	err = r.Host.Reboot(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the host goes down
	}
	return fmt.Errorf("rebooting into the active system: %w", err)
}

// wanted finds the reset that was begun. The state is closed again when it returns.
func (r *Recovery) wanted() (op state.Operation, found bool, err error) {
	if _, err := os.Stat(r.StateDir); errors.Is(err, os.ErrNotExist) {
		return op, false, nil
	}
	dir, err := state.NewDir(r.StateDir)
	if err != nil {
		return op, false, err
	}
	unlock, err := dir.Lock()
	if err != nil {
		return op, false, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	store, err := state.Open(dir)
	if err != nil {
		return op, false, err
	}
	for _, op := range store.Operations() {
		if op.Type != protocol.OperationReset || op.Done() {
			continue
		}
		at, err := resetDocument(store.Documents(), op).Load()
		if err != nil {
			return op, false, err
		}
		if at.Step == stepRecovery {
			return op, true, nil
		}
	}
	return op, false, nil
}

// note keeps the reason of a failure for the agent in the active system.
func (r *Recovery) note(ctx context.Context, op state.Operation, failure error) error {
	if !r.oemMounted() {
		if _, err := r.Commands.Run(ctx, "", "mount", OEMDir); err != nil {
			return err
		}
	}
	dir, err := state.NewDir(r.StateDir)
	if err != nil {
		return err
	}
	return outcomeDocument(dir, op).Save(outcome{Failure: failure.Error()})
}

func (r *Recovery) oemMounted() bool {
	data, err := os.ReadFile(r.System.path("/proc/self/mountinfo"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == OEMDir {
			return true
		}
	}
	return false
}
