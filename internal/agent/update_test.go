package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// updater records what it is asked for.
type updater struct {
	mu        sync.Mutex
	connected int
	report    *protocol.AgentUpdate
	// kept has each release that was asked for, nil where none is pinned.
	kept chan *protocol.AgentRelease
	// keep answers, where it is set.
	keep func(ctx context.Context, release *protocol.AgentRelease, changed func()) (time.Duration, error)
}

func newUpdater() *updater { return &updater{kept: make(chan *protocol.AgentRelease, 1000)} }

func (u *updater) Able() bool { return true }

func (u *updater) Keep(ctx context.Context, release *protocol.AgentRelease, changed func()) (time.Duration, error) {
	u.kept <- release
	if u.keep != nil {
		return u.keep(ctx, release, changed)
	}
	return 0, nil
}

func (u *updater) Connected() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.connected++
	return nil
}

func (u *updater) Report() *protocol.AgentUpdate {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.report
}

func (u *updater) says(report protocol.AgentUpdate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.report = &report
}

// startWith is start with an updater; result is how the agent ended.
func (r *rig) startWith(u agent.Updater) (result <-chan error) {
	r.t.Helper()
	a, err := r.agent()
	if err != nil {
		r.t.Fatal(err)
	}
	a.Updater = u
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		ended <- a.Run(ctx)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-over
	})
	return ended
}

// updates are what the manager was told, one after the other.
func (m *manager) updates() []protocol.AgentUpdate {
	var told []protocol.AgentUpdate
	for _, report := range m.reports {
		if report.AgentUpdate != nil {
			told = append(told, *report.AgentUpdate)
		}
	}
	return told
}

var pinned = protocol.AgentRelease{Version: "v9.9.9", SHA256: "d1"}

func TestUpdatesTheAgentAndEnds(t *testing.T) {
	r := newRig(t)
	u := newUpdater()
	u.keep = func(_ context.Context, release *protocol.AgentRelease, _ func()) (time.Duration, error) {
		if release != nil && *release == pinned {
			return 0, agent.ErrRestart
		}
		return 0, nil
	}
	result := r.startWith(u)
	r.manager.await(t, "the agent said what it can do", func(m *manager) bool {
		return len(m.reports) > 0 && m.reports[0].Hello != nil && slices.Contains(m.reports[0].Hello.Capabilities, protocol.CapabilityUpdate)
	})
	r.manager.want(nil, protocol.Desired{Agent: &pinned})
	if err := <-result; !errors.Is(err, agent.ErrRestart) {
		t.Errorf("ended with %v", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.connected == 0 {
		t.Error("the updater was not told that the manager answers")
	}
}

// Nothing is updated while an operation runs or is due, and what the plan wants
// ends a download.
func TestOperationsComeBeforeUpdates(t *testing.T) {
	r := newRig(t)
	r.hold = make(chan struct{})
	u := newUpdater()
	interrupted := make(chan struct{})
	u.keep = func(ctx context.Context, release *protocol.AgentRelease, _ func()) (time.Duration, error) {
		if release == nil {
			return 0, nil
		}
		<-ctx.Done()
		close(interrupted)
		return 0, nil
	}
	r.startWith(u)
	r.manager.want(nil, protocol.Desired{Agent: &pinned})
	for release := range u.kept {
		if release != nil {
			break
		}
	}
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-interrupted
	<-r.started
	r.manager.want(bootstrapOf("a"), protocol.Desired{Agent: &pinned})
	r.manager.await(t, "the plan was taken", taken)
	if asked := len(u.kept); asked != 0 {
		t.Errorf("the updater was asked %d times in the middle of a bootstrap", asked)
	}
	u.keep = nil
	close(r.hold)
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if release := <-u.kept; release == nil || *release != pinned {
		t.Errorf("asked for %+v", release)
	}
}

// The updater is asked again when it wants to be.
func TestUpdaterIsAskedAgain(t *testing.T) {
	r := newRig(t)
	u := newUpdater()
	calls := 0
	u.keep = func(context.Context, *protocol.AgentRelease, func()) (time.Duration, error) {
		if calls++; calls == 5 {
			return 0, agent.ErrRestart
		}
		return time.Hour, nil
	}
	if err := <-r.startWith(u); !errors.Is(err, agent.ErrRestart) {
		t.Errorf("ended with %v", err)
	}
}

// How an update goes is told once, and again to whoever may not know it.
func TestReportsUpdates(t *testing.T) {
	r := newRig(t)
	u := newUpdater()
	u.says(protocol.AgentUpdate{Version: "v9.9.9", State: protocol.StateRunning})
	changes := make(chan func(), 1)
	u.keep = func(_ context.Context, release *protocol.AgentRelease, changed func()) (time.Duration, error) {
		if release != nil {
			changes <- changed
		}
		return 0, nil
	}
	r.startWith(u)
	r.manager.await(t, "the update was reported", func(m *manager) bool { return len(m.updates()) == 1 })
	r.manager.want(nil, protocol.Desired{Agent: &pinned})
	changed := <-changes
	changed()
	u.says(protocol.AgentUpdate{Version: "v9.9.9", State: protocol.StateFailed, Message: "no"})
	changed()
	r.manager.await(t, "the failure was reported", func(m *manager) bool {
		told := m.updates()
		return len(told) == 2 && told[1].State == protocol.StateFailed && told[1].Message == "no"
	})
	// The connection breaks off, and whoever answers next may know nothing.
	r.manager.server.CloseClientConnections()
	r.manager.await(t, "the failure was reported again", func(m *manager) bool { return len(m.updates()) == 3 })
}
