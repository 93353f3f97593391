package session

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// poll opens a poll as the agent API does.
func (f *fixture) poll(g Gomega) *Poll {
	_, allowed := f.AllowPoll(host)
	g.Expect(allowed).To(BeTrue())
	opened, verdict := f.Open(host, "")
	g.Expect(verdict).To(Equal(BootAccepted))
	return opened
}

// isWoken reports whether the poll was woken since the last call.
func isWoken(p *Poll) bool {
	select {
	case <-p.Woken():
		return true
	default:
		return false
	}
}

// A question wakes the open poll. The next poll and the report answer it.
func TestQuestionAndAnswer(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	open := f.poll(g)
	g.Expect(open.TakeQuestion()).To(BeFalse(), "nothing is asked at rest")
	asked := f.clock.Now()
	g.Expect(f.Ask(host)).To(Equal(failover.Contact{AskedAt: asked}), "what the host has sent before is no answer")
	g.Expect(isWoken(open)).To(BeTrue())
	g.Expect(open.TakeQuestion()).To(BeTrue())
	g.Expect(open.TakeQuestion()).To(BeFalse(), "a question is asked once")
	f.Close(host, open)
	f.clock.Step(time.Second)
	again := f.poll(g)
	g.Expect(again.TakeQuestion()).To(BeFalse())
	g.Expect(f.Ask(host)).To(Equal(failover.Contact{AskedAt: asked, Answer: failover.Answer{Request: true}}))
	f.EvidenceWritten(host, &infrav1.HostEndpoint{}, false)
	g.Expect(f.Ask(host)).To(Equal(failover.Contact{AskedAt: asked, Answer: failover.Answer{Request: true, Report: true}}), "an unchanged report is an answer")

	f.clock.Step(failover.AskInterval - time.Second)
	g.Expect(f.Ask(host)).To(Equal(failover.Contact{AskedAt: f.clock.Now(), Before: &failover.Answer{Request: true, Report: true}}))
	g.Expect(again.TakeQuestion()).To(BeTrue())
	f.Close(host, again)
	f.poll(g)
	f.clock.Step(time.Hour)
	g.Expect(f.Ask(host)).To(Equal(failover.Contact{AskedAt: f.clock.Now()}), "an old answer says nothing")
}

// A host that does not answer is not asked again, and counts again when it returns.
func TestQuestionWithoutAnswer(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	open := f.poll(g)
	asked := failover.Contact{AskedAt: f.clock.Now()}
	f.Ask(host)
	g.Expect(open.TakeQuestion()).To(BeTrue())
	f.Close(host, open)
	f.clock.Step(10 * failover.AskInterval)
	g.Expect(f.Ask(host)).To(Equal(asked))
	f.poll(g)
	g.Expect(f.Ask(host).AskedAt).To(Equal(f.clock.Now()), "it is asked again")
}

// Without an open poll the next poll carries the question.
func TestQuestionWaitsForAPoll(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	f.Close(host, f.poll(g))
	left := f.clock.Now()
	f.clock.Step(3 * time.Second)
	g.Expect(f.Ask(host)).To(Equal(failover.Contact{AskedAt: f.clock.Now(), AbsentSince: left}))
	g.Expect(f.poll(g).TakeQuestion()).To(BeTrue())
	g.Expect(f.poll(g).TakeQuestion()).To(BeFalse())
}

// The host hangs up before its poll was answered with the question.
func TestQuestionToAHostThatHangsUp(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	open := f.poll(g)
	f.Ask(host)
	f.clock.Step(time.Second)
	f.Close(host, open)
	g.Expect(f.Ask(host).AbsentSince).To(Equal(f.clock.Now()))
	g.Expect(f.poll(g).TakeQuestion()).To(BeTrue())
}

// A manager that has just started does not know yet who is silent. A host that was
// connected to its predecessor is asked when it returns.
func TestHostThatHasNotReturned(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	g.Expect(f.Ask(host)).To(BeZero())
	started := f.clock.Now()
	f.Expect(host)
	f.clock.Step(30 * time.Second)
	g.Expect(f.Ask(host)).To(Equal(failover.Contact{AskedAt: f.clock.Now(), AbsentSince: started, HasNotReturned: true}))
	g.Expect(f.poll(g).TakeQuestion()).To(BeTrue())
	f.clock.Step(failover.AskInterval)
	g.Expect(f.Ask(host).HasNotReturned).To(BeFalse(), "it has returned")
}

// However often a host changes its mind about the endpoint, the hosts of its cluster are
// asked at most once in an interval.
func TestThreat43_QuestionsAreLimited(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	questions := 0
	open := f.poll(g)
	for range 4 * failover.AskInterval / time.Second {
		f.Ask(host)
		if open.TakeQuestion() {
			questions++
			f.Close(host, open)
			open = f.poll(g)
		}
		f.clock.Step(time.Second)
	}
	g.Expect(questions).To(Equal(4))
}

// A host that does not answer is not asked again, so a host that disagrees with it has no
// more questions asked.
func TestThreat43_SilentHostIsNotAskedAgain(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t)
	open := f.poll(g)
	asked := f.Ask(host)
	g.Expect(open.TakeQuestion()).To(BeTrue())
	for range 4 {
		f.clock.Step(failover.AskInterval)
		g.Expect(f.Ask(host)).To(Equal(asked))
		g.Expect(open.TakeQuestion()).To(BeFalse())
	}
}
