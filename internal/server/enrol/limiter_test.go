package enrol

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// soon bounds what happens at once, also on a busy machine.
const soon = time.Minute

func TestLimiter(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	draining := make(chan struct{})
	l := newLimiter(clock, 1, draining)
	release, err := l.acquire(t.Context(), netip.Prefix{})
	g.Expect(err).NotTo(HaveOccurred())
	results := make(chan error, 1)
	acquire := func(ctx context.Context) {
		go func() {
			_, err := l.acquire(ctx, netip.Prefix{})
			results <- err
		}()
		g.Eventually(clock.HasWaiters, soon).Should(BeTrue())
	}
	status := func(err error) int {
		var p *problem.Error
		g.Expect(errors.As(err, &p)).To(BeTrue(), "%v", err)
		return p.Status
	}

	acquire(t.Context())
	clock.Step(limiterTimeout)
	g.Expect(status(<-results)).To(Equal(http.StatusServiceUnavailable))

	ctx, cancel := context.WithCancel(t.Context())
	acquire(ctx)
	cancel()
	g.Expect(<-results).To(MatchError(context.Canceled))

	acquire(t.Context())
	release()
	g.Expect(<-results).To(Succeed())

	acquire(t.Context())
	close(draining)
	g.Expect(status(<-results)).To(Equal(http.StatusServiceUnavailable))
}

// A source that has many enrolments waiting does not delay those of others: a slot that
// becomes free goes to the source with the fewest.
func TestThreat15_EnrolmentsOfOneSource(t *testing.T) {
	g := NewWithT(t)
	l := newLimiter(clocktesting.NewFakeClock(time.Unix(0, 0)), 2, nil)
	greedy, other := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	type slot struct {
		source  netip.Prefix
		release func()
	}
	got := make(chan slot, 10)
	waiting := 0
	acquire := func(source netip.Prefix) {
		go func() {
			if release, err := l.acquire(t.Context(), source); err == nil {
				got <- slot{source, release}
			}
		}()
	}
	await := func(source netip.Prefix) {
		acquire(source)
		waiting++
		g.Eventually(func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.waiting)
		}, soon).Should(Equal(waiting))
	}
	acquire(greedy)
	first := <-got
	acquire(greedy) // it may have all slots while nobody else enrols
	second := <-got
	for range 3 {
		await(greedy)
	}
	await(other)
	await(other)
	first.release()
	third := <-got
	g.Expect(third.source).To(Equal(other), "before the callers who waited longer")
	second.release()
	fourth := <-got
	g.Expect(fourth.source).To(Equal(greedy), "the other source has one")
	third.release()
	fifth := <-got
	g.Expect(fifth.source).To(Equal(other))
	for _, s := range []slot{fourth, fifth} {
		s.release()
		s = <-got
		g.Expect(s.source).To(Equal(greedy))
		t.Cleanup(s.release)
	}
}

// No caller waits for a slot for ever: an agent that is refused in time tries again.
func TestThreat15_WaitForAnEnrolmentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := newLimiter(clock.RealClock{}, 1, nil)
		release, err := l.acquire(t.Context(), netip.Prefix{})
		g.Expect(err).NotTo(HaveOccurred())
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = l.acquire(ctx, netip.Prefix{})
		busy, ok := errors.AsType[*problem.Error](err)
		g.Expect(ok).To(BeTrue(), "%v", err)
		g.Expect(busy.Status).To(Equal(http.StatusServiceUnavailable))
		g.Expect(l.waiting).To(BeEmpty())
	})
}

func TestKeyLocksLockEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var locks keyLocks
		unlock, err := locks.lock(t.Context(), "a")
		g.Expect(err).NotTo(HaveOccurred())
		unlockOther, err := locks.lock(t.Context(), "b")
		g.Expect(err).NotTo(HaveOccurred())
		unlockOther()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = locks.lock(ctx, "a")
		g.Expect(err).To(MatchError(context.Canceled))
		locked := make(chan struct{})
		go func() {
			if unlock, err := locks.lock(t.Context(), "a"); err == nil {
				unlock()
				close(locked)
			}
		}()
		synctest.Wait()
		g.Expect(locked).NotTo(BeClosed())
		unlock()
		synctest.Wait()
		g.Expect(locked).To(BeClosed())
		g.Expect(locks.held).To(BeEmpty())
	})
}

func TestPendingCreatesExpire(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	timers := timer.NewQueue(clock)
	p := &pendingCreates{clock: clock, timers: timers, hosts: map[string]*infrav1.ElementalHost{}}
	host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Identity: &infrav1.HostIdentity{KeyFingerprint: "key"}}}
	p.add(host)
	g.Expect(p.take("other")).To(BeNil())
	g.Expect(p.take("key")).To(BeIdenticalTo(host))
	g.Expect(p.take("key")).To(BeNil())
	p.add(host)
	clock.Step(pendingCreateLifetime)
	go timers.Run(t.Context())
	g.Eventually(func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.hosts)
	}, soon).Should(BeZero())
}
