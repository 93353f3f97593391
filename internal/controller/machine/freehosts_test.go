package machine_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
)

// newFreeHostsFixture returns a fixture whose reconciler keeps an index of free hosts, as
// in a manager.
func newFreeHostsFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	machine.KeepFreeHosts(f.reconciler)
	f.Cluster("c")
	return f
}

// deleteEvent handles the event that the host was deleted.
func (f *fixture) deleteEvent(host *infrav1.ElementalHost) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	machine.HostHandler(f.reconciler).Delete(f.Ctx, event.DeleteEvent{Object: host}, q)
}

func TestFreeHostsAreClaimedInOrder(t *testing.T) {
	f := newFreeHostsFixture(t)
	for _, name := range []string{"h2", "h1", "h3"} {
		f.woken(nil, f.Host(name))
	}
	f.woken(nil, f.Host("h0", func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }))
	for _, name := range []string{"h1", "h2", "h3"} {
		_, m := f.Machine("c", "m-"+name)
		f.reconcile(m)
		f.Expect(m.Spec.HostRef.Name).To(Equal(name), "no event has reported yet that the other hosts are claimed")
	}
	_, m := f.Machine("c", "late")
	f.Expect(f.reconcile(m).RequeueAfter).To(Equal(time.Second), "a nominated host may become free again")
	f.Clock.Step(time.Minute)
	f.reconcile(m)
	c := f.ExpectCondition(m, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
	f.Expect(c.Message).To(Equal("None of 4 hosts can be used: 3 Claimed, 1 Cordoned"))
}

// Hosts in the index are checked again before they are claimed, because events may be late.
func TestOutdatedFreeHostsAreNotClaimed(t *testing.T) {
	f := newFreeHostsFixture(t)
	cordoned, deleted, used, good := f.Host("h1"), f.Host("h2"), f.Host("h3"), f.Host("h4")
	for _, h := range []*infrav1.ElementalHost{cordoned, deleted, used, good} {
		f.woken(nil, h.DeepCopy())
	}
	controllertest.Change(f.Fixture, cordoned, func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} })
	f.Delete(deleted)
	controllertest.Change(f.Fixture, used, func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ClusterName: "d", Phase: infrav1.ClaimReserved}
	})
	_, m := f.Machine("c", "m")
	f.reconcile(m)
	f.Expect(m.Spec.HostRef.Name).To(Equal("h4"))
}

func TestFreeHostsFollowEvents(t *testing.T) {
	f := newFreeHostsFixture(t)
	first, second := f.Host("h1"), f.Host("h2")
	f.woken(nil, first.DeepCopy())
	f.woken(nil, second.DeepCopy())
	f.deleteEvent(first)
	before := second.DeepCopy()
	controllertest.Change(f.Fixture, second, func(h *infrav1.ElementalHost) { h.Labels = map[string]string{"size": "big"} })
	f.woken(before, second.DeepCopy())
	_, small := f.Machine("c", "small", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "small"}}
	})
	f.reconcile(small)
	f.ExpectCondition(small, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
	_, big := f.Machine("c", "big", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "big"}}
	})
	f.reconcile(big)
	f.Expect(big.Spec.HostRef.Name).To(Equal("h2"))
}

// While a host is missing in the index, the machine retries and is not told that no host exists.
func TestHostWithoutEventIsClaimedLater(t *testing.T) {
	f := newFreeHostsFixture(t)
	host := f.Host("h1")
	_, m := f.Machine("c", "m")
	f.Expect(f.reconcile(m).RequeueAfter).To(Equal(time.Second))
	f.Expect(f.woken(nil, host)).To(Equal([]string{"m"}))
	f.reconcile(m)
	f.Expect(m.Spec.HostRef.Name).To(Equal("h1"))
}

// Hosts that another manager watches are not claimed, even if this manager watched them
// before.
func TestHostsOfAnotherManagerAreNotClaimed(t *testing.T) {
	f := newFreeHostsFixture(t)
	f.reconciler.WatchFilter = "mine"
	mine := func(h *infrav1.ElementalHost) { h.Labels = map[string]string{clusterv1.WatchLabel: "mine"} }
	moved, silently, others := f.Host("h1", mine), f.Host("h2", mine), f.Host("h3")
	for _, h := range []*infrav1.ElementalHost{moved, silently, others} {
		f.woken(nil, h.DeepCopy())
	}
	before := moved.DeepCopy()
	theirs := func(h *infrav1.ElementalHost) { h.Labels[clusterv1.WatchLabel] = "theirs" }
	controllertest.Change(f.Fixture, moved, theirs)
	f.woken(before, moved)
	controllertest.Change(f.Fixture, silently, theirs)
	_, m := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { m.Labels[clusterv1.WatchLabel] = "mine" })
	f.reconcile(m)
	c := f.ExpectCondition(m, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
	f.Expect(c.Message).To(HavePrefix("There are no ElementalHosts"))
}

// For all machines with the same constraints the hosts are evaluated once a second.
func TestMachinesWithTheSameConstraintsGetTheSameMessage(t *testing.T) {
	f := newFreeHostsFixture(t)
	f.woken(nil, f.Host("h1", func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }))
	message := func(name string) string {
		_, m := f.Machine("c", name)
		f.reconcile(m)
		return f.ExpectCondition(m, infrav1.HostClaimedCondition, no, infrav1.NoHostReason).Message
	}
	f.Expect(message("a")).To(HavePrefix("None of 1 hosts"))
	f.Host("h2", func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} })
	f.Expect(message("b")).To(HavePrefix("None of 1 hosts"))
	f.Clock.Step(time.Second)
	f.Expect(message("c")).To(HavePrefix("None of 2 hosts"))
}

func TestMachinesThatAreDeletedOrServedLeaveTheWaitlist(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	deleted, served, waits := f.waitingMachine("a"), f.waitingMachine("b"), f.waitingMachine("c")
	controllertest.Change(f.Fixture, deleted, func(m *infrav1.ElementalMachine) { m.Finalizers = nil })
	f.Delete(deleted)
	f.reconcile(deleted)
	host := f.Host("h1")
	f.reconcile(served)
	f.Expect(served.Spec.HostRef.Name).To(Equal(host.Name))
	next := f.Host("h2")
	f.Expect(f.woken(nil, next)).To(Equal([]string{waits.Name}))
	f.Expect(f.woken(nil, next)).To(Equal([]string{waits.Name}), "the same host wakes the same machine")
	f.Expect(machine.WaitlistLen(f.reconciler)).To(Equal(1))
}

func TestWokenMachineIsEligibleAgain(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	f.waitingMachine("a")
	f.waitingMachine("b")
	f.Expect(f.woken(nil, f.Host("h1"))).To(Equal([]string{"a"}))
	f.Clock.Step(11 * time.Second)
	f.Expect(f.woken(nil, f.Host("h2"))).To(Equal([]string{"a"}), "it did not claim the first host in time")
}
