package audit

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// Callers can fill the table of one kind of decision, but suppress no other kind.
func TestDeduperIsBoundedForEachDecision(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakeClock(time.Now())
	d := newDeduper(clock)
	for i := range maxSubjects {
		g.Expect(d.first(EnrolmentRefused, strconv.Itoa(i))).To(BeTrue())
	}
	g.Expect(d.first(EnrolmentRefused, "one more")).To(BeFalse())
	g.Expect(d.first(KeyRefused, "another decision")).To(BeTrue())
	clock.Step(repeatInterval)
	g.Expect(d.first(EnrolmentRefused, "one more")).To(BeTrue())
	g.Expect(d.decisions[EnrolmentRefused].at).To(HaveLen(1))
}
