package session

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

const (
	eventually = time.Minute
	often      = time.Millisecond
)

var host = types.NamespacedName{Namespace: "edge", Name: "host-1"}

// fixture is a Tracker with a clock and a count of enqueued hosts.
type fixture struct {
	*Tracker
	clock    *clocktesting.FakeClock
	enqueued atomic.Int64
}

func (f *fixture) enqueuedHosts() int64 { return f.enqueued.Load() }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
	var err error
	f.Tracker, err = New(Options{
		Clock: f.clock, Grace: time.Minute, Timers: timer.NewQueue(f.clock), Metrics: prometheus.NewRegistry(),
		Enqueue: func(types.NamespacedName) { f.enqueued.Add(1) },
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return f
}

// The status must be right in the end, also when the connection changes during a write.
func TestConnectionThatChangesDuringTheWrite(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	first, _ := f.Open(host, "")
	g.Expect(f.enqueuedHosts()).To(BeEquivalentTo(1))
	f.Recorded(host, true)
	f.Close(host, first)
	f.clock.Step(2 * time.Minute)
	_, disconnected := f.State(host)
	g.Expect(disconnected).To(BeTrue())
	second, _ := f.Open(host, "") // while Disconnected is being written
	f.Recorded(host, false)
	g.Expect(f.enqueuedHosts()).To(BeEquivalentTo(2), "Connected has to be written again")
	connected, _ := f.State(host)
	g.Expect(connected).To(BeTrue())
	g.Expect(f.polling.Load()).To(BeEquivalentTo(1))

	// A poll of a deleted host does not affect a new host of the same name.
	f.Forget(host)
	f.Tracker.Close(host, second)
	g.Expect(f.polling.Load()).To(BeZero())
	g.Expect(f.sessions).To(BeEmpty())
}

func TestBootVerdicts(t *testing.T) {
	g := NewWithT(t)
	var b bootTracker
	now := time.Unix(0, 0)
	g.Expect(b.observe("", now)).To(Equal(BootAccepted), "no poll has had a boot ID")
	g.Expect(b.observe("a", now)).To(Equal(BootAccepted))
	g.Expect(b.observe("", now)).To(Equal(BootMissing))
	g.Expect(b.observe("b", now)).To(Equal(BootAccepted))
	g.Expect(b.observe("a", now.Add(BootGrace-1))).To(Equal(BootOverlaps))
	g.Expect(b.observe("a", now.Add(BootGrace))).To(Equal(BootReturned))
	g.Expect(b.observe("b", now.Add(BootGrace))).To(Equal(BootAccepted))
	for _, boot := range []string{"c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		g.Expect(b.observe(boot, now)).To(Equal(BootAccepted))
	}
	g.Expect(b.former).To(HaveLen(maxFormerBoots))
}

func TestEvidenceIsDeferredAfterAWrite(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	first, second, third := &infrav1.HostEndpoint{Message: "1"}, &infrav1.HostEndpoint{Message: "2"}, &infrav1.HostEndpoint{Message: "3"}
	g.Expect(f.DeferEvidence(host, first)).To(BeFalse())
	f.EvidenceWritten(host, first, true)
	g.Expect(f.DeferEvidence(host, second)).To(BeTrue())
	g.Expect(f.DeferEvidence(host, third)).To(BeTrue())
	g.Expect(f.DueEvidence(host)).To(BeNil())
	f.clock.Step(evidenceInterval)
	g.Expect(f.DueEvidence(host)).To(BeIdenticalTo(third), "only the newest is written")
	f.EvidenceWritten(host, third, false)
	g.Expect(f.DueEvidence(host)).To(BeNil())
}

func TestEvidenceThatWasDeferredDuringAWriteIsWritten(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	first, second, third := &infrav1.HostEndpoint{Message: "1"}, &infrav1.HostEndpoint{Message: "2"}, &infrav1.HostEndpoint{Message: "3"}
	g.Expect(f.DeferEvidence(host, first)).To(BeFalse())
	f.EvidenceWritten(host, first, true)
	f.clock.Step(evidenceInterval / 2)
	g.Expect(f.DeferEvidence(host, third)).To(BeTrue(), "while the second is being written")
	f.EvidenceWritten(host, second, true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.timers.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	g.Eventually(f.timers.Waits, eventually, often).Should(BeTrue())
	f.clock.Step(2 * evidenceInterval)
	g.Eventually(f.enqueuedHosts, eventually, often).Should(BeNumerically(">=", 2), "after each of the two intervals")
	g.Expect(f.DueEvidence(host)).To(BeIdenticalTo(third))
}

func TestIntervalOfProgressBeginsWithTheWrite(t *testing.T) {
	f := newFixture(t)
	step := func(name string) infrav1.HostOperation {
		return infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: "c1", State: infrav1.OperationRunning, Step: name}
	}
	if !f.DeferProgress(host, step("a")) {
		t.Fatal("the first progress was not deferred")
	}
	f.clock.Step(progressInterval)
	first, ok := f.DueProgress(host)
	if !ok || first != step("a") {
		t.Fatalf("due after the interval: %v, %v", first, ok)
	}
	// The write takes longer than the interval, and more progress is reported meanwhile.
	if !f.DeferProgress(host, step("b")) {
		t.Fatal("progress was not deferred during a write")
	}
	f.clock.Step(progressInterval)
	f.ProgressWritten(host, first)
	if second, ok := f.DueProgress(host); !ok || second != step("b") {
		t.Errorf("due after a long write: %v, %v", second, ok)
	}
	// A failed write is repeated, whatever the interval.
	if again, ok := f.DueProgress(host); !ok || again != step("b") {
		t.Errorf("due after a failed write: %v, %v", again, ok)
	}
}

// A host has few polls open: of too many, the first expires.
func TestThreat15_OpenPollsOfAHost(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	first := f.poll(g)
	for range maxPolls - 1 {
		g.Expect(f.poll(g).Expired()).To(BeFalse())
	}
	g.Expect(first.Expired()).To(BeFalse())
	g.Expect(f.poll(g).Expired()).To(BeFalse())
	g.Expect(first.Expired()).To(BeTrue())
}

// The requests of a host are limited, those of others are not affected.
func TestThreat15_RequestsOfAHost(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	allow := func(host types.NamespacedName) bool {
		_, ok := f.AllowRequest(host)
		return ok
	}
	for range requestsBurst {
		g.Expect(allow(host)).To(BeTrue())
	}
	g.Expect(allow(host)).To(BeFalse())
	g.Expect(allow(types.NamespacedName{Namespace: "edge", Name: "host-2"})).To(BeTrue())
	f.clock.Step(time.Second)
	for range requestsPerSecond {
		g.Expect(allow(host)).To(BeTrue())
	}
	g.Expect(allow(host)).To(BeFalse())
}
