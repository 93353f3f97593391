package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// fakeSnapshotter has snapshots whose attempts the test decides.
type fakeSnapshotter struct {
	// began receives the ID of each attempt, unless it is full.
	began chan string
	// attempt is called by Take; nil succeeds.
	attempt func(ctx context.Context, id string) error

	mu   sync.Mutex
	list []protocol.EtcdSnapshotFacts
}

func (s *fakeSnapshotter) Take(ctx context.Context, want protocol.EtcdSnapshot) error {
	select {
	case s.began <- want.ID:
	default:
	}
	if s.attempt != nil {
		if err := s.attempt(ctx, want.ID); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.list, func(have protocol.EtcdSnapshotFacts) bool { return have.ID == want.ID }) {
		s.list = append([]protocol.EtcdSnapshotFacts{{ID: want.ID, Cluster: want.Cluster}}, s.list...)
	}
	return nil
}

func (s *fakeSnapshotter) List(context.Context) ([]protocol.EtcdSnapshotFacts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list), nil
}

// withSnapshotter gives the agents of the rig a Snapshotter.
func withSnapshotter(r *rig) *fakeSnapshotter {
	s := &fakeSnapshotter{began: make(chan string, 1000)}
	r.with = func(o *agent.Options) { o.Snapshotter = s }
	return s
}

func edge() protocol.EtcdCluster { return protocol.EtcdCluster{Namespace: "ns", Name: "c"} }

func desiredSnapshot(id string) protocol.Desired {
	return protocol.Desired{Hostname: "host", EtcdSnapshot: &protocol.EtcdSnapshot{ID: id, Cluster: edge(), Keep: 3}}
}

// reportedSnapshots is a condition: the manager knows of these snapshots, and of this failure
// of the last attempt.
func reportedSnapshots(failure *protocol.EtcdSnapshotFailure, ids ...string) func(*manager) bool {
	want := protocol.EtcdSnapshotReport{Failure: failure}
	for _, id := range ids {
		want.Snapshots = append(want.Snapshots, protocol.EtcdSnapshotFacts{ID: id, Cluster: edge()})
	}
	return func(m *manager) bool {
		for _, report := range slices.Backward(m.reports) {
			if report.EtcdSnapshots != nil {
				return cmp.Equal(*report.EtcdSnapshots, want)
			}
		}
		return false
	}
}

func TestTakesTheDesiredSnapshot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := withSnapshotter(r)
	r.manager.want(nil, protocol.Desired{Hostname: "host"})
	stop := r.start()
	r.manager.await(t, "the empty list is reported", reportedSnapshots(nil))
	r.manager.want(nil, desiredSnapshot("1"))
	r.manager.await(t, "the first one is taken", reportedSnapshots(nil, "1"))
	r.manager.want(nil, desiredSnapshot("2"))
	r.manager.await(t, "the second one is taken", reportedSnapshots(nil, "2", "1"))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	r.manager.set(func(m *manager) {
		if !slices.Contains(m.enrolled[0].Hello.Capabilities, protocol.CapabilityEtcdSnapshot) {
			t.Errorf("capabilities: %v", m.enrolled[0].Hello.Capabilities)
		}
		m.reports = nil
	})
	s.list = s.list[:1]
	r.start()
	r.manager.await(t, "the next process reports what it finds", reportedSnapshots(nil, "2"))
}

// A failed attempt is reported and repeated. It stays reported when the snapshot is no longer
// asked for, so that a person can read it.
func TestSnapshotFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := withSnapshotter(r)
	var fixed sync.Map
	s.attempt = func(_ context.Context, id string) error {
		if _, ok := fixed.Load(id); ok {
			return nil
		}
		return errors.New("the disk lacks space")
	}
	r.manager.want(nil, desiredSnapshot("1"))
	r.start()
	failure := &protocol.EtcdSnapshotFailure{ID: "1", Cluster: edge(), Message: "the disk lacks space"}
	r.manager.await(t, "the failure is reported", reportedSnapshots(failure))
	s.mu.Lock()
	s.list = []protocol.EtcdSnapshotFacts{{ID: "0", Cluster: edge()}}
	s.mu.Unlock()
	r.manager.want(nil, protocol.Desired{Hostname: "host"})
	r.manager.await(t, "it stays reported", reportedSnapshots(failure, "0"))
	fixed.Store("1", true)
	r.manager.want(nil, desiredSnapshot("1"))
	r.manager.await(t, "it is taken", reportedSnapshots(nil, "1", "0"))
}

// What has begun goes on when the plan no longer asks for it, as during a pause.
func TestSnapshotGoesOnDuringAPause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := withSnapshotter(r)
	release := make(chan struct{})
	s.attempt = func(ctx context.Context, _ string) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.manager.want(nil, desiredSnapshot("1"))
	r.start()
	<-s.began
	r.manager.want(nil, protocol.Desired{Hostname: "host"})
	r.manager.await(t, "the plan is taken", taken)
	close(release)
	r.manager.await(t, "it is taken", reportedSnapshots(nil, "1"))
}

// untilStopped is an operation that lasts until an attempt has ended.
type untilStopped struct {
	operation.Runner

	stopped chan struct{}
}

func (r untilStopped) Run(ctx context.Context, _ state.Operation, _ func(string)) (operation.Result, error) {
	select {
	case <-r.stopped:
		return operation.Result{State: protocol.StateSucceeded}, nil
	case <-ctx.Done():
		return operation.Result{}, ctx.Err()
	}
}

func (untilStopped) Cleanup(state.Operation) error { return nil }

// An operation ends an attempt, and none begins before it has ended.
func TestSnapshotsStandAsideForOperations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := withSnapshotter(r)
	stopped := make(chan struct{})
	r.with = func(o *agent.Options) {
		o.Snapshotter, o.Runners[protocol.OperationReboot] = s, untilStopped{stopped: stopped}
	}
	s.attempt = func(ctx context.Context, id string) error {
		if id == "1" {
			<-ctx.Done()
			close(stopped)
			return ctx.Err()
		}
		return nil
	}
	r.manager.want(nil, desiredSnapshot("1"))
	r.start()
	<-s.began
	r.manager.want(&protocol.Operation{Type: protocol.OperationReboot, ID: "r1"}, desiredSnapshot("2"))
	r.manager.await(t, "the second one is taken", reportedSnapshots(nil, "2"))
	r.manager.await(t, "the operation has ended", ended("r1", protocol.StateSucceeded))
}
