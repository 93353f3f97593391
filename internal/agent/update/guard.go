package update

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
)

// MaxStarts is how often a program on trial may start without reaching the manager.
const MaxStarts = 3

// Guard rolls back a program on trial that was started MaxStarts times and never reached
// the manager. Its release is not tried again. The service runs Guard with the former
// program before each start. Guard does nothing without a trial.
func Guard(files state.Files, disk Disk, now time.Time, log *slog.Logger) error {
	at, err := document(files).Load()
	if err != nil || at.Phase != trial && at.Phase != failed {
		return err
	}
	present, err := digest(disk, at.Path)
	if err != nil {
		return fmt.Errorf("looking which program is installed: %w", err)
	}
	if present != at.SHA256 {
		return nil
	}
	if at.Phase == trial {
		if at.Attempts < MaxStarts {
			at.Attempts++
			return document(files).Save(at)
		}
		at.Phase, at.FailedAt, at.RetryAfter = failed, now.UTC().Round(0), 0
		at.Message = fmt.Sprintf("%s was started %d times and never reached the manager; %s was put back. "+
			"It is not tried again: pin another release", at.To, at.Attempts, at.From)
		if err := document(files).Save(at); err != nil {
			return err
		}
	}
	log.Warn("Putting the former agent back", "version", at.From, "instead", at.To, "reason", at.Message)
	_, err = rollBack(disk, at.Path)
	return err
}
