package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// fakeStager is a Stager whose attempts the test decides.
type fakeStager struct {
	// calls receives the version of each attempt at its begin, and "clear" for Clear. Calls
	// that nobody receives are dropped: attempts that fail are repeated without a delay.
	calls chan string
	// attempt is called by Stage.
	attempt func(ctx context.Context, want protocol.Bundle, tell func(protocol.BundleState, string)) error
	watch   func(protocol.BundleReport)

	mu sync.Mutex
	// stopped are the versions of the attempts that were stopped.
	stopped []string
}

func newFakeStager() *fakeStager {
	return &fakeStager{
		calls:   make(chan string, 1000),
		attempt: func(context.Context, protocol.Bundle, func(protocol.BundleState, string)) error { return nil },
	}
}

func (s *fakeStager) record(call string) {
	select {
	case s.calls <- call:
	default:
	}
}

func (s *fakeStager) Watch(report func(protocol.BundleReport)) { s.watch = report }

func (s *fakeStager) Retry(context.Context) error { return nil }

func (s *fakeStager) Clear(context.Context) error {
	s.record("clear")
	return nil
}

func (s *fakeStager) Stage(ctx context.Context, want protocol.Bundle, _ func(string)) (string, bundle.Manifest, error) {
	s.record(want.Version)
	tell := func(state protocol.BundleState, message string) {
		s.watch(protocol.BundleReport{SHA256: want.SHA256, Version: want.Version, State: state, Message: message})
	}
	err := s.attempt(ctx, want, tell)
	if ctx.Err() != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = append(s.stopped, want.Version)
		return "", bundle.Manifest{}, ctx.Err()
	}
	if err == nil {
		tell(protocol.BundleStaged, "")
	}
	return "/stage", bundle.Manifest{}, err
}

// withStager gives the agents of the rig a Stager.
func withStager(r *rig) *fakeStager {
	s := newFakeStager()
	r.with = func(o *agent.Options) { o.Stager = s }
	return s
}

func desiredBundle(version string) protocol.Desired {
	return protocol.Desired{Hostname: "host", Bundle: &protocol.Bundle{Version: version, SHA256: "sum of " + version, SizeBytes: 1, Sources: []string{"manager"}}}
}

// reportedBundle is a condition: the manager knows this state of the bundle.
func reportedBundle(want protocol.BundleReport) func(*manager) bool {
	return func(m *manager) bool {
		for _, report := range slices.Backward(m.reports) {
			if report.Bundle != nil {
				return *report.Bundle == want
			}
		}
		return false
	}
}

func staged(version string) protocol.BundleReport {
	return protocol.BundleReport{SHA256: "sum of " + version, Version: version, State: protocol.BundleStaged}
}

func TestKeepsTheDesiredBundleStaged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	withStager(r)
	r.manager.want(nil, desiredBundle("v1"))
	stop := r.start()
	r.manager.await(t, "v1 is staged", reportedBundle(staged("v1")))
	r.manager.want(nil, desiredBundle("v2"))
	r.manager.await(t, "v2 is staged", reportedBundle(staged("v2")))
	// A host that desires none any more says that it has none.
	r.manager.want(nil, protocol.Desired{Hostname: "host"})
	r.manager.await(t, "nothing is staged", reportedBundle(protocol.BundleReport{}))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	hello := func(m *manager) protocol.Hello { return m.enrolled[0].Hello }(r.manager)
	if !slices.Contains(hello.Capabilities, protocol.CapabilityBundle) {
		t.Errorf("capabilities: %v", hello.Capabilities)
	}
	// The next process looks at the stage again, and reports what it finds.
	r.manager.set(func(m *manager) { m.reports = nil })
	r.manager.want(nil, desiredBundle("v2"))
	r.start()
	r.manager.await(t, "v2 is staged", reportedBundle(staged("v2")))
}

// A failed attempt is repeated, and reported.
func TestRetriesToStage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := withStager(r)
	attempts := 0
	fixed := make(chan struct{})
	s.attempt = func(_ context.Context, _ protocol.Bundle, tell func(protocol.BundleState, string)) error {
		if attempts++; attempts > 1 {
			<-fixed
			return nil
		}
		tell(protocol.BundleFailed, "the disk lacks space")
		return errors.New("the disk lacks space")
	}
	r.manager.want(nil, desiredBundle("v1"))
	r.start()
	failed := staged("v1")
	failed.State, failed.Message = protocol.BundleFailed, "the disk lacks space"
	r.manager.await(t, "the failure is reported", reportedBundle(failed))
	close(fixed)
	r.manager.await(t, "v1 is staged", reportedBundle(staged("v1")))
}

// Progress that comes soon after the last report waits, a change of the state does not.
func TestProgressOfStagingIsReportedRarely(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := withStager(r)
	next, told := make(chan string), make(chan struct{})
	s.attempt = func(_ context.Context, _ protocol.Bundle, tell func(protocol.BundleState, string)) error {
		for message := range next {
			tell(protocol.BundleStaging, message)
			told <- struct{}{}
		}
		return nil
	}
	fetched := func(message string) {
		next <- message
		<-told
	}
	r.manager.want(nil, desiredBundle("v1"))
	r.start()
	fetched("fetched 0 %")
	staging := staged("v1")
	staging.State, staging.Message = protocol.BundleStaging, "fetched 0 %"
	r.manager.await(t, "the begin is reported", reportedBundle(staging))
	fetched("fetched 10 %")
	r.clock.advance(11 * time.Second)
	fetched("fetched 20 %")
	staging.Message = "fetched 20 %"
	r.manager.await(t, "the progress is reported", reportedBundle(staging))
	close(next)
	r.manager.await(t, "v1 is staged", reportedBundle(staged("v1")))
	r.manager.set(func(m *manager) {
		for _, report := range m.reports {
			if report.Bundle != nil && report.Bundle.Message == "fetched 10 %" {
				t.Error("reported progress of less than ten seconds")
			}
		}
	})
}

// The run loop leaves the stage to an operation, and stops an attempt for one.
func TestStagingStandsAsideForOperations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := withStager(r)
	s.attempt = func(ctx context.Context, want protocol.Bundle, _ func(protocol.BundleState, string)) error {
		if want.Version == "v1" {
			<-ctx.Done()
		}
		return nil
	}
	r.manager.want(nil, desiredBundle("v1"))
	r.start()
	for got := ""; got != "v1"; {
		got = <-s.calls
	}
	// The operation ends; only then v2 is staged.
	r.manager.want(&protocol.Operation{Type: protocol.OperationReset, ID: "r1"}, desiredBundle("v2"))
	r.manager.await(t, "v2 is staged", reportedBundle(staged("v2")))
	r.manager.await(t, "the operation has ended", ended("r1", protocol.StateSucceeded))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.stopped, []string{"v1"}) {
		t.Errorf("stopped %v", s.stopped)
	}
}

// A host that stages no bundles does not say that it can, and reports none.
func TestWithoutStager(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manager.want(nil, desiredBundle("v1"))
	r.start()
	r.manager.await(t, "the plan is taken", taken)
	r.manager.await(t, "the facts are reported", func(m *manager) bool { return len(m.reports) > 0 })
	r.manager.set(func(m *manager) {
		for _, report := range m.reports {
			if report.Bundle != nil {
				t.Errorf("reported %+v", report.Bundle)
			}
		}
		if slices.Contains(m.enrolled[0].Hello.Capabilities, protocol.CapabilityBundle) {
			t.Error("has the capability")
		}
	})
}
