package update

import (
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func release(at record) protocol.AgentRelease {
	return protocol.AgentRelease{Version: at.To, SHA256: at.SHA256}
}

// refusal is the error of a release that is not used, and not tried again before retry.
type refusal struct {
	err error
	// retry is the delay before the next attempt; 0 means never.
	retry time.Duration
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// fail records a release that must not be tried again before after. The caller must hold
// mu, or be New.
func (u *Updater) fail(want protocol.AgentRelease, after time.Duration, reason error) error {
	now := u.Clock.Now()
	next := record{
		Phase: failed, From: u.Version, To: want.Version, SHA256: want.SHA256, Path: u.Path,
		Message: reason.Error(), FailedAt: now.UTC().Round(0), RetryAfter: after,
	}
	if u.at.is(want) {
		next.From, next.StartedAt, next.Attempts = u.at.From, u.at.StartedAt, u.at.Attempts
	}
	if err := document(u.Documents).Save(next); err != nil {
		return err
	}
	u.at, u.current, u.until = next, nil, time.Time{}
	if after > 0 {
		u.until = now.Add(after)
	}
	return nil
}

// refused reports whether the release has failed and must not be tried yet, and how long
// until it may; 0 means never.
func (u *Updater) refused(want protocol.AgentRelease) (left time.Duration, refused bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.Phase != failed || !u.at.is(want) {
		return 0, false
	}
	if u.until.IsZero() {
		return 0, true
	}
	left = u.until.Sub(u.Clock.Now())
	return max(left, 0), left > 0
}
