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

// updater is a fake agent.Updater that records its calls.
type updater struct {
	mu        sync.Mutex
	connected int
	report    *protocol.AgentUpdate
	// asked receives the release of each Ensure, nil if none is pinned.
	asked chan *protocol.AgentRelease
	// ensure, if set, is called by Ensure.
	ensure func(ctx context.Context, release *protocol.AgentRelease, changed func()) (time.Duration, error)
}

func newUpdater() *updater { return &updater{asked: make(chan *protocol.AgentRelease, 1000)} }

func (u *updater) CanUpdate() bool { return true }

func (u *updater) Ensure(ctx context.Context, release *protocol.AgentRelease, changed func()) (time.Duration, error) {
	u.asked <- release
	if u.ensure != nil {
		return u.ensure(ctx, release, changed)
	}
	return 0, nil
}

func (u *updater) Confirm() error {
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

func (u *updater) setReport(report protocol.AgentUpdate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.report = &report
}

// startWith runs the agent with an updater. result receives the result of Run.
func (r *rig) startWith(u agent.Updater) (result <-chan error) {
	r.t.Helper()
	with := r.with
	r.with = func(o *agent.Options) {
		with(o)
		o.Updater = u
	}
	a, err := r.agent()
	if err != nil {
		r.t.Fatal(err)
	}
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

// updates returns the update reports that the manager received, in order.
func (m *manager) updates() []protocol.AgentUpdate {
	var reports []protocol.AgentUpdate
	for _, report := range m.reports {
		if report.AgentUpdate != nil {
			reports = append(reports, *report.AgentUpdate)
		}
	}
	return reports
}

var pinned = protocol.AgentRelease{Version: "v9.9.9", SHA256: "d1"}

func TestUpdatesTheAgentAndEnds(t *testing.T) {
	r := newRig(t)
	u := newUpdater()
	u.ensure = func(_ context.Context, release *protocol.AgentRelease, _ func()) (time.Duration, error) {
		if release != nil && *release == pinned {
			return 0, agent.ErrRestart
		}
		return 0, nil
	}
	result := r.startWith(u)
	r.manager.await(t, "the agent reported its capabilities", func(m *manager) bool {
		return len(m.reports) > 0 && m.reports[0].Hello != nil && slices.Contains(m.reports[0].Hello.Capabilities, protocol.CapabilityUpdate)
	})
	r.manager.want(nil, protocol.Desired{Agent: &pinned})
	if err := <-result; !errors.Is(err, agent.ErrRestart) {
		t.Errorf("ended with %v", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.connected == 0 {
		t.Error("Confirm was not called")
	}
}

// No update starts while an operation runs or is due, and a new operation interrupts a
// download.
func TestOperationsComeBeforeUpdates(t *testing.T) {
	r := newRig(t)
	r.hold = make(chan struct{})
	u := newUpdater()
	interrupted := make(chan struct{}, 1000)
	u.ensure = func(ctx context.Context, release *protocol.AgentRelease, _ func()) (time.Duration, error) {
		if release == nil {
			return 0, nil
		}
		<-ctx.Done()
		interrupted <- struct{}{}
		return 0, nil
	}
	r.startWith(u)
	r.manager.want(nil, protocol.Desired{Agent: &pinned})
	for release := range u.asked {
		if release != nil {
			break
		}
	}
	r.manager.want(bootstrapOf("a"), protocol.Desired{})
	<-interrupted
	<-r.started
	// The plan that pins the release may also have interrupted a download, if that began
	// when the plan was stored.
	for len(u.asked) > 0 {
		<-u.asked
	}
	r.manager.want(bootstrapOf("a"), protocol.Desired{Agent: &pinned})
	r.manager.await(t, "the plan was taken", taken)
	if asked := len(u.asked); asked != 0 {
		t.Errorf("the updater was asked %d times during a bootstrap", asked)
	}
	u.ensure = nil
	close(r.hold)
	r.manager.await(t, "the bootstrap succeeded", ended("a", protocol.StateSucceeded))
	if release := <-u.asked; release == nil || *release != pinned {
		t.Errorf("asked for %+v", release)
	}
}

// The agent calls Ensure again after the duration that Ensure returned.
func TestUpdaterIsAskedAgain(t *testing.T) {
	r := newRig(t)
	u := newUpdater()
	calls := 0
	u.ensure = func(context.Context, *protocol.AgentRelease, func()) (time.Duration, error) {
		if calls++; calls == 5 {
			return 0, agent.ErrRestart
		}
		return time.Hour, nil
	}
	if err := <-r.startWith(u); !errors.Is(err, agent.ErrRestart) {
		t.Errorf("ended with %v", err)
	}
}

// The agent reports each update state once, and again after a reconnect.
func TestReportsUpdates(t *testing.T) {
	r := newRig(t)
	u := newUpdater()
	u.setReport(protocol.AgentUpdate{Version: "v9.9.9", State: protocol.StateRunning})
	changes := make(chan func(), 1)
	u.ensure = func(_ context.Context, release *protocol.AgentRelease, changed func()) (time.Duration, error) {
		if release != nil {
			select {
			case changes <- changed:
			default: // each answer over a new connection brings the plan again
			}
		}
		return 0, nil
	}
	r.startWith(u)
	r.manager.await(t, "the update was reported", func(m *manager) bool { return len(m.updates()) > 0 })
	r.manager.want(nil, protocol.Desired{Agent: &pinned})
	changed := <-changes
	changed()
	u.setReport(protocol.AgentUpdate{Version: "v9.9.9", State: protocol.StateFailed, Message: "no"})
	changed()
	failed := func(m *manager) bool {
		reports := m.updates()
		return len(reports) > 0 && reports[len(reports)-1].State == protocol.StateFailed && reports[len(reports)-1].Message == "no"
	}
	r.manager.await(t, "the failure was reported", failed)
	r.manager.set(func(m *manager) {
		// A report that began before the first poll was answered is repeated.
		if reports := m.updates(); len(reports) > 3 || len(slices.Compact(reports)) != 2 {
			t.Errorf("reported %+v", reports)
		}
		m.reports = nil
	})
	// After a reconnect the manager may not know earlier reports.
	r.manager.server.CloseClientConnections()
	r.manager.await(t, "the failure was reported again", failed)
}
