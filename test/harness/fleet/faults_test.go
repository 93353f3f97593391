package fleet_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

func faults(count int, faults fleet.Faults) func(*fleet.Settings) {
	return func(s *fleet.Settings) { s.Count, s.Faults, s.Seed = count, faults, 1 }
}

func TestBootstrapsThatFailOnRequest(t *testing.T) {
	r := newRig(t)
	s := &software{}
	h := r.host(with(s), faults(1, fleet.Faults{FailingBootstraps: 1, SlowBootstraps: 100 * time.Millisecond}))
	r.claim(h, "m1", "data")
	op := r.ended(h, infrav1.OperationBootstrap, "m1")
	r.Expect(op.State).To(Equal(infrav1.OperationFailed))
	r.Expect(op.Message).To(ContainSubstring("a fault was asked for"))
	r.Expect(s.log()).To(BeEmpty())
}

// A fleet with a bad network is connected in the end, and one whose hosts crash and
// lose network and power all the time is when that is over.
func TestFleetSurvives(t *testing.T) {
	r := newRig(t)
	bad := fleet.Faults{
		Latency: 5 * time.Millisecond, Loss: 0.2,
		Disconnects: 2 * time.Second, Crashes: 2 * time.Second, PowerCuts: 2 * time.Second, Outage: 500 * time.Millisecond,
	}
	f := r.fleet(faults(20, bad))
	r.Expect(f.PowerOn(t.Context(), 500*time.Millisecond)).To(Succeed())
	done := func() (all fleet.Done) {
		for _, h := range f.Hosts() {
			one := h.Status().Done
			all.Boots += one.Boots
			all.Crashes += one.Crashes
			all.Cuts += one.Cuts
		}
		return all
	}
	r.Eventually(done, soon, often).Should(And(
		HaveField("Boots", BeNumerically(">", 25)), HaveField("Crashes", BeNumerically(">", 5)), HaveField("Cuts", BeNumerically(">", 5)),
	))
	r.Expect(f.SetFaults(fleet.Faults{})).To(Succeed())
	// A connection may fall silent before its first answer, also a minute from now.
	r.Eventually(func() int { return f.Figures().Connected() }, 2*soon, often).Should(Equal(20))
	list := &infrav1.ElementalHostList{}
	r.Expect(r.admin.List(t.Context(), list)).To(Succeed())
	names := map[string]bool{}
	for _, o := range list.Items {
		if o.Namespace == r.namespace {
			names[o.Name] = true
		}
	}
	r.Expect(names).To(HaveLen(20), "a host is enrolled once")
}

func TestLatencyDelays(t *testing.T) {
	r := newRig(t)
	const latency = 300 * time.Millisecond
	began := time.Now()
	r.host(faults(1, fleet.Faults{Latency: latency}))
	// A handshake, an enrolment and a plan: three times something arrives. On a busy machine, one of them may be there before
	// the host reads, which is not delayed.
	r.Expect(time.Since(began)).To(BeNumerically(">", 2*latency))
}

// A host whose network lets nobody through says so, and connects once it does.
func TestLossIsSeen(t *testing.T) {
	r := newRig(t)
	f := r.fleet(faults(1, fleet.Faults{Loss: 1}))
	r.Expect(f.PowerOn(t.Context(), 0)).To(Succeed())
	h := f.Hosts()[0]
	r.Eventually(func() string { return h.Status().Error }, soon, often).Should(Or(ContainSubstring("refused"), ContainSubstring("deadline")))
	r.Expect(f.SetFaults(fleet.Faults{})).To(Succeed())
	r.connected(h)
}

func TestClocksAreOff(t *testing.T) {
	r := newRig(t)
	f := r.fleet(func(s *fleet.Settings) { s.Count, s.ClockSkew = 5, 48*time.Hour })
	r.Expect(f.PowerOn(t.Context(), 0)).To(Succeed())
	off := 0
	for _, h := range f.Hosts() {
		r.connected(h)
		if meta.IsStatusConditionFalse(r.object(h).Status.Conditions, "ClockSynchronized") {
			off++
		}
	}
	r.Expect(off).To(BeNumerically(">", 0))
}

func TestSoftwareThatCannotBeRemoved(t *testing.T) {
	r := newRig(t)
	s := &software{errs: map[string]error{"remove": errors.New("the disk is broken")}}
	h := r.host(with(s))
	r.claim(h, "m1", "data")
	r.ended(h, infrav1.OperationBootstrap, "m1")
	r.change(h, func(o *infrav1.ElementalHost) { o.Spec.Claim.Phase = infrav1.ClaimReleasing })
	op := r.ended(h, infrav1.OperationReset, "m1")
	r.Expect(op.State).To(Equal(infrav1.OperationFailed))
	r.Expect(op.Message).To(ContainSubstring("the disk is broken"))
	r.Expect(op.Message).To(ContainSubstring("file /etc/installed"))
	s.mu.Lock()
	s.errs = nil
	s.mu.Unlock()
	r.Eventually(func() infrav1.OperationState { return r.object(h).Operation(infrav1.OperationReset, "m1").State }, soon, often).
		Should(Equal(infrav1.OperationSucceeded))
	r.Expect(strings.Join(s.log(), " ")).To(HaveSuffix("remove remove"))
}
