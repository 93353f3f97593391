package update

import (
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
)

// TrialTime is how long a program on trial may run without reaching the manager.
const TrialTime = 5 * time.Minute

// Confirm confirms a trial.
func (u *Updater) Confirm() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.Phase != trial || u.self != u.at.SHA256 {
		return nil
	}
	next := u.at
	next.Phase = confirmed
	if err := document(u.Documents).Save(next); err != nil {
		return err
	}
	u.at = next
	u.Log.Info("Updated", "version", u.at.To, "from", u.at.From)
	return nil
}

// endTrial returns how long a trial still lasts. It rolls back a program whose trial ended
// without an answer of the manager, and completes a rollback that was interrupted.
func (u *Updater) endTrial() (left time.Duration, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.self == "" || u.self != u.at.SHA256 {
		return 0, nil
	}
	switch u.at.Phase {
	case trial:
		if left := u.until.Sub(u.Clock.Now()); left > 0 {
			return left, nil
		}
		if err := u.fail(release(u.at), retryUnreached, fmt.Errorf("%s ran for %s and did not reach the manager; %s was put back. "+
			"It is tried again after a day, or when the pinned release changes", u.at.To, TrialTime, u.at.From)); err != nil {
			return 0, err
		}
	case failed:
	default:
		return 0, nil
	}
	done, err := rollBack(u.Disk, u.Path)
	if err != nil || !done {
		u.Log.Error("Could not put the former agent back, so this one goes on", "error", err, "path", u.Path+PreviousSuffix)
		return 0, nil
	}
	u.Log.Warn("Put the former agent back", "version", u.at.From, "instead", u.at.To, "reason", u.at.Message)
	return 0, agent.ErrRestart
}
