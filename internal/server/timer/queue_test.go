package timer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestCancelledCallsAreNotMade(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	q := NewQueue(clock)
	var called []int
	var added []*Entry
	for i := range 10 {
		added = append(added, q.At(clock.Now().Add(time.Duration(10-i)*time.Second), func() { called = append(called, i) }))
	}
	for _, i := range []int{9, 0, 4, 4, 7} {
		q.Cancel(added[i])
	}
	g.Expect(q.Len()).To(Equal(6))
	clock.Step(time.Minute)
	_, more := q.callDue()
	g.Expect(more).To(BeFalse())
	g.Expect(called).To(Equal([]int{8, 6, 5, 3, 2, 1}))
	q.Cancel(added[1])
}

// running runs the queue until the end of the test.
func running(t *testing.T, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { q.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

// expectToWait waits until the queue has nothing to do until the clock advances.
func expectToWait(t *testing.T, q *Queue) {
	t.Helper()
	NewWithT(t).Eventually(q.Waits).WithTimeout(time.Minute).WithPolling(time.Millisecond).Should(BeTrue())
}

func TestCallsAreMadeInOrder(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	q := NewQueue(clock)
	running(t, q)
	called := make(chan string, 10)
	now := clock.Now()
	q.At(now.Add(3*time.Second), func() { called <- "third" })
	q.At(now.Add(1*time.Second), func() { called <- "first" })
	q.At(now.Add(2*time.Second), func() { called <- "second" })
	q.At(now.Add(-time.Second), func() { called <- "overdue" })
	for _, want := range []string{"overdue", "first", "second", "third"} {
		expectToWait(t, q)
		g.Expect(called).To(Receive(Equal(want)))
		g.Expect(called).NotTo(Receive())
		clock.Step(time.Second)
	}
}

// A queue waits while it waits for a call that was cancelled.
func TestWaitsAfterACancellation(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	q := NewQueue(clock)
	g.Expect(q.Waits()).To(BeTrue(), "there is no call")
	called := make(chan struct{}, 1)
	q.At(clock.Now().Add(2*time.Second), func() { called <- struct{}{} })
	g.Expect(q.Waits()).To(BeFalse(), "it does not run")
	first := q.At(clock.Now().Add(time.Second), func() {})
	running(t, q)
	expectToWait(t, q)
	q.Cancel(first)
	expectToWait(t, q)
	clock.Step(3 * time.Second)
	expectToWait(t, q)
	g.Expect(called).To(Receive())
}

// countingClock counts the timers that were made.
type countingClock struct {
	*clocktesting.FakeClock
	timers atomic.Int32
}

func (c *countingClock) NewTimer(d time.Duration) clock.Timer {
	c.timers.Add(1)
	return c.FakeClock.NewTimer(d)
}

// A queue that waits does not begin anew by itself: a test may advance the clock only while
// no timer is being made.
func TestWaitsUntilSomethingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		clock := &countingClock{FakeClock: clocktesting.NewFakeClock(time.Now())}
		q := NewQueue(clock)
		later := clock.Now().Add(time.Minute)
		q.At(later, func() {})
		running(t, q)
		synctest.Wait()
		g.Expect(q.Waits()).To(BeTrue())
		g.Expect(clock.timers.Load()).To(BeEquivalentTo(1))
		q.At(later, func() {})
		synctest.Wait()
		g.Expect(q.Waits()).To(BeTrue())
		g.Expect(clock.timers.Load()).To(BeEquivalentTo(1), "the time is the same")
		q.At(later.Add(-1), func() {})
		synctest.Wait()
		g.Expect(q.Waits()).To(BeTrue())
		g.Expect(clock.timers.Load()).To(BeEquivalentTo(2))
	})
}

// jumpingClock advances between the call of Now and that of NewTimer.
type jumpingClock struct {
	*clocktesting.FakeClock
	jump time.Duration
}

func (c *jumpingClock) NewTimer(d time.Duration) clock.Timer {
	c.Step(c.jump)
	c.jump = 0
	return c.FakeClock.NewTimer(d)
}

// The clock reaches the time of a call while the queue begins to wait for it.
func TestClockAdvancesBeforeTheWait(t *testing.T) {
	q := NewQueue(&jumpingClock{clocktesting.NewFakeClock(time.Now()), time.Minute})
	called := make(chan struct{})
	q.At(q.clock.Now().Add(time.Minute), func() { close(called) })
	running(t, q)
	NewWithT(t).Eventually(called).WithTimeout(time.Minute).Should(BeClosed())
}
