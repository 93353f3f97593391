package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestScheduleForgetsWhatIsDropped(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s := newSchedule(clock)
	var got []int
	var added []*entry
	for i := range 10 {
		added = append(added, s.at(clock.Now().Add(time.Duration(10-i)*time.Second), func() { got = append(got, i) }))
	}
	for _, i := range []int{9, 0, 4, 4, 7} {
		s.drop(added[i])
	}
	clock.Step(time.Minute)
	_, more := s.callDue()
	g.Expect(more).To(BeFalse())
	g.Expect(got).To(Equal([]int{8, 6, 5, 3, 2, 1}))
	s.drop(added[1])
}

// late has the cache know more right after it was asked.
type late struct {
	client.Client
	then func()
}

func (l *late) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	hosts := list.(*infrav1.ElementalHostList) //nolint:forcetypeassert // nothing else is asked for
	hosts.Items = []infrav1.ElementalHost{*hostOfKey("1")}
	l.then()
	return nil
}

func hostOfKey(version string) *infrav1.ElementalHost {
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "host-1", ResourceVersion: version}}
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "key"}
	return host
}

// A write that the cache learns of while it is asked is not forgotten in between.
func TestOwnWriteIsSeenWhileTheCacheCatchesUp(t *testing.T) {
	g := NewWithT(t)
	h := &hosts{own: newOwnWrites()}
	h.client = &late{then: func() { h.seen(hostOfKey("2"), false) }}
	g.Expect(h.own.add(hostOfKey("2"))).To(BeTrue())
	host, role, err := h.byKey(t.Context(), "key")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(role).To(Equal(keyCurrent))
	g.Expect(host.ResourceVersion).To(Equal("2"))
	g.Expect(h.own.get(types.NamespacedName{Namespace: "edge", Name: "host-1"})).To(BeNil(), "the cache has it")
}

// Strangers can have lines of one kind dropped, of no other.
func TestSparingIsBoundedByKind(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s := &sparing{clock: clock, said: map[decision]*said{}}
	for i := range maxSpared {
		g.Expect(s.first(decidedEnrolmentRefused, strconv.Itoa(i))).To(BeTrue())
	}
	g.Expect(s.first(decidedEnrolmentRefused, "one more")).To(BeFalse())
	g.Expect(s.first(decidedKeyRefused, "another matter")).To(BeTrue())
	clock.Step(spareFor)
	g.Expect(s.first(decidedEnrolmentRefused, "one more")).To(BeTrue())
	g.Expect(s.said[decidedEnrolmentRefused].at).To(HaveLen(1))
}

func TestScheduleKeepsOrderWithOneTimer(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s := newSchedule(clock)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.run(ctx) })
	defer group.Wait()
	defer cancel()
	got := make(chan string, 10)
	now := clock.Now()
	s.at(now.Add(3*time.Second), func() { got <- "third" })
	s.at(now.Add(1*time.Second), func() { got <- "first" })
	s.at(now.Add(2*time.Second), func() { got <- "second" })
	s.at(now.Add(-time.Second), func() { got <- "at once" })
	g.Eventually(got).Should(Receive(Equal("at once")))
	for _, want := range []string{"first", "second", "third"} {
		g.Eventually(clock.HasWaiters).Should(BeTrue())
		g.Consistently(got, 20*time.Millisecond).ShouldNot(Receive())
		clock.Step(time.Second)
		g.Eventually(got).Should(Receive(Equal(want)))
	}
}

func TestLimiterIsBounded(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	l := newLimiter(clock, 1, 2)
	for _, want := range []bool{true, true, false} {
		g.Expect(l.allow("10.0.0.1:1000")).To(Equal(want))
	}
	g.Expect(l.allow("10.0.0.1:2000")).To(BeFalse(), "another port is the same source")
	g.Expect(l.allow("10.0.0.2:1000")).To(BeTrue())
	g.Expect(l.allow("[fd00::1]:1000")).To(BeTrue())
	g.Expect(l.allow("[fd00::2]:1000")).To(BeTrue())
	g.Expect(l.allow("[fd00::3]:1000")).To(BeFalse(), "a /64 is one source")
	g.Expect(l.allow("odd")).To(BeTrue())
	clock.SetTime(clock.Now().Add(time.Second))
	g.Expect(l.allow("10.0.0.1:1000")).To(BeTrue())

	for i := range 2 * maxSources {
		l.allow(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	g.Expect(len(l.sources)).To(BeNumerically("<=", maxSources))
	clock.SetTime(clock.Now().Add(time.Hour))
	g.Expect(l.allow("192.0.2.1:1")).To(BeTrue())
	g.Expect(len(l.sources)).To(BeNumerically("<", 10))
}

func TestBoundedText(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"plain":                   "plain",
		"  spaced\n":              "spaced",
		"a\x00\x1b[1mb\tc\nd":     "a[1mb\tc\nd",
		"bad\xff":                 "bad\uFFFD",
		strings.Repeat("x", 20):   strings.Repeat("x", 10),
		"aaaaaaaaa" + "é":         "aaaaaaaaa",
		"ééééé" + "é":             "ééééé",
		"aaaaaaaa  " + "and more": "aaaaaaaa",
	} {
		NewWithT(t).Expect(bounded(in, 10)).To(Equal(want), "%q", in)
	}
}

// What is written about a host must be true in the end, also when the truth
// changes while it is written.
func TestConnectionThatChangesDuringTheWrite(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	changed := 0
	host := types.NamespacedName{Namespace: "n", Name: "h"}
	p := newPresence(clock, time.Minute, newSchedule(clock), func(types.NamespacedName) { changed++ })

	first, _ := p.open(host, "")
	g.Expect(changed).To(Equal(1))
	p.written(host, true)
	p.close(host, first)
	clock.Step(2 * time.Minute)
	_, absent := p.state(host)
	g.Expect(absent).To(BeTrue())
	second, _ := p.open(host, "") // while Disconnected is being written
	p.written(host, false)
	g.Expect(changed).To(Equal(2), "Connected has to be written again")
	connected, _ := p.state(host)
	g.Expect(connected).To(BeTrue())
	g.Expect(p.polling.Load()).To(BeEquivalentTo(1))

	// A host that is deleted and comes again is another one.
	p.forget(host)
	p.close(host, second)
	g.Expect(p.polling.Load()).To(BeZero())
	g.Expect(p.sessions).To(BeEmpty())
}

func TestRecordOfOperations(t *testing.T) {
	const id = "c1"
	bound := &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimBound}
	releasing := &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimReleasing}
	held := &infrav1.HostClaim{ID: id, Phase: infrav1.ClaimHeld}
	op := func(kind infrav1.OperationType, id string, state infrav1.OperationState) infrav1.HostOperation {
		return infrav1.HostOperation{Type: kind, ID: id, State: state}
	}
	const b, r = infrav1.OperationBootstrap, infrav1.OperationReset
	const running, ok, failed = infrav1.OperationRunning, infrav1.OperationSucceeded, infrav1.OperationFailed
	for name, test := range map[string]struct {
		claim    *infrav1.HostClaim
		recorded []infrav1.HostOperation
		report   infrav1.HostOperation
		want     []infrav1.HostOperation
		refused  bool
	}{
		"first":                    {bound, nil, op(b, id, running), []infrav1.HostOperation{op(b, id, running)}, false},
		"end, held":                {held, []infrav1.HostOperation{op(b, id, running)}, op(b, id, ok), []infrav1.HostOperation{op(b, id, ok)}, false},
		"reset, held":              {held, nil, op(r, id, running), nil, true},
		"end":                      {bound, []infrav1.HostOperation{op(b, id, running)}, op(b, id, ok), []infrav1.HostOperation{op(b, id, ok)}, false},
		"end stays":                {bound, []infrav1.HostOperation{op(b, id, failed)}, op(b, id, ok), []infrav1.HostOperation{op(b, id, failed)}, false},
		"next claim":               {bound, []infrav1.HostOperation{op(b, "c0", ok)}, op(b, id, running), []infrav1.HostOperation{op(b, id, running)}, false},
		"late end of a bootstrap":  {releasing, nil, op(b, id, ok), []infrav1.HostOperation{op(b, id, ok)}, false},
		"reset tried again":        {releasing, []infrav1.HostOperation{op(r, id, failed)}, op(r, id, running), []infrav1.HostOperation{op(r, id, running)}, false},
		"reset done":               {releasing, []infrav1.HostOperation{op(r, id, ok)}, op(r, id, failed), []infrav1.HostOperation{op(r, id, ok)}, false},
		"reset beside a bootstrap": {releasing, []infrav1.HostOperation{op(b, id, ok)}, op(r, id, ok), []infrav1.HostOperation{op(b, id, ok), op(r, id, ok)}, false},
		"reset of a bound host":    {bound, nil, op(r, id, ok), nil, true},
		"repeat after the claim":   {nil, []infrav1.HostOperation{op(r, id, ok)}, op(r, id, ok), []infrav1.HostOperation{op(r, id, ok)}, false},
		"progress after the claim": {nil, []infrav1.HostOperation{op(b, id, running)}, op(b, id, running), nil, true},
		"an old claim's":           {bound, nil, op(b, "c0", ok), nil, true},
		"of a reserved host":       {&infrav1.HostClaim{ID: id, Phase: infrav1.ClaimReserved}, nil, op(b, id, ok), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Claim: test.claim}}
			host.Status.Operations = test.recorded
			err := record(host, test.report, time.Now())
			g.Expect(err != nil).To(Equal(test.refused))
			if !test.refused {
				g.Expect(host.Status.Operations).To(Equal(test.want))
			}
		})
	}
}

// Handshakes that are ready to go on wait for each other, not for those whose peers
// say nothing.
func TestHandshakesTakeTurnsToCompute(t *testing.T) {
	g := NewWithT(t)
	turns := make(chan struct{}, 1)
	first, firstPeer := net.Pipe()
	second, secondPeer := net.Pipe()
	defer func() { _, _ = first.Close(), second.Close() }()
	reached, leave := make(chan string, 2), make(chan struct{})
	var group sync.WaitGroup
	shake := func(name string, conn net.Conn) {
		group.Go(func() {
			c := &pacedConn{Conn: conn, computing: turns}
			_ = c.pace(func() error {
				_, err := c.Read(make([]byte, 1))
				reached <- name
				<-leave
				return err
			})
		})
	}
	shake("first", first)
	shake("second", second)
	_, err := secondPeer.Write([]byte("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(<-reached).To(Equal("second"), "it does not wait for a peer that is silent")
	// What it writes is read only when the first one has its turn, if that has not begun yet.
	group.Go(func() { _, _ = firstPeer.Write([]byte("x")) })
	g.Consistently(reached, 50*time.Millisecond).ShouldNot(Receive(), "the other one computes")
	close(leave)
	g.Expect(<-reached).To(Equal("first"))
	group.Wait()
	g.Expect(turns).To(BeEmpty())
}
