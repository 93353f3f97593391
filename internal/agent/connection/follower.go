package connection

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// followAfter is how long no manager must have answered before the host tries the successor. A
// restart of the manager takes less.
const followAfter = 20 * time.Second

// Follower decides when the host tries another management cluster. Use NewFollower. One goroutine
// may use it.
type Follower struct {
	manager *Manager
	// at is when the host may try the successor although its managers do not say that they don't
	// know it. It is zero while they answer.
	at time.Time
}

// NewFollower returns a Follower for a host whose managers answer.
func NewFollower(m *Manager) *Follower { return &Follower{manager: m} }

// Answered records that a manager has answered.
func (f *Follower) Answered() { f.at = time.Time{} }

// Failed is called after each poll that failed. It changes to another management cluster if the
// present one does not know the host, or if none of its managers has answered for 20 seconds, and
// reports whether it did. It returns only errors of the state directory.
func (f *Follower) Failed(ctx context.Context, cause error) (followed bool, err error) {
	isUnknown := client.IsProblemEverywhere(cause, protocol.ProblemUnknownHost)
	now := f.manager.o.Now()
	switch {
	case !f.manager.o.Store.Identity().Enrolled(), client.IsAnswered(cause):
		f.Answered()
		return false, nil
	case isUnknown:
	case f.at.IsZero():
		f.at = now.Add(followAfter)
		return false, nil
	case now.Before(f.at):
		return false, nil
	}
	f.at = now.Add(followAfter)
	followed, err = f.manager.follow(ctx, isUnknown)
	if state.IsWriteError(err) {
		return false, err
	}
	if err != nil {
		f.manager.o.Log.Info("Does not follow to another management cluster", "error", err)
	}
	return followed, nil
}
