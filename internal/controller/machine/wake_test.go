package machine_test

import (
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// woken returns the names of the machines that a change of a host wakes. before is nil
// for a new host.
func (f *fixture) woken(before, after *infrav1.ElementalHost) []string {
	f.T.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	handler := machine.HostHandler(f.reconciler)
	if before == nil {
		handler.Create(f.Ctx, event.CreateEvent{Object: after}, q)
	} else {
		handler.Update(f.Ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	}
	names := []string{}
	for q.Len() > 0 {
		r, _ := q.Get()
		names = append(names, r.Name)
		q.Done(r)
	}
	return names
}

// waitingMachine creates a machine that finds no host.
func (f *fixture) waitingMachine(name string, changes ...func(*clusterv1.Machine, *infrav1.ElementalMachine)) *infrav1.ElementalMachine {
	f.T.Helper()
	_, m := f.Machine("c", name, changes...)
	f.reconcile(m)
	f.ExpectCondition(m, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
	return m
}

func TestEachHostWakesOneWaitingMachine(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	f.waitingMachine("a-worker")
	f.waitingMachine("b-worker")
	f.waitingMachine("z-control-plane", controllertest.ControlPlane)
	f.waitingMachine("picky", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "big"}}
	})
	first, second, third := f.Host("h1"), f.Host("h2"), f.Host("h3")
	f.Expect(f.woken(nil, first)).To(Equal([]string{"z-control-plane"}), "control planes come first; the host does not match the selector of the other one")
	f.Expect(f.woken(nil, second)).To(Equal([]string{"a-worker"}), "then the oldest machine that was not just woken for another host")
	f.Expect(f.woken(nil, third)).To(Equal([]string{"b-worker"}))
	f.Expect(f.woken(nil, f.Host("h4"))).To(HaveLen(1), "all machines were woken already: one is woken again")
}

func TestChangesThatWakeWaitingMachines(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	f.waitingMachine("m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "big"}}
	})
	base := controllertest.FreeHost(f.Namespace, "h1", f.Clock.Now())
	base.Labels = map[string]string{"size": "big"}
	base.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityTunnel), string(protocol.CapabilityLocalEndpoint)}}
	version := 0
	with := func(change func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		h := base.DeepCopy()
		version++
		h.ResourceVersion = strconv.Itoa(version)
		change(h)
		return h
	}
	free := with(func(*infrav1.ElementalHost) {})
	for name, before := range map[string]*infrav1.ElementalHost{
		"freed": with(func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: "x", MachineName: "x", ClusterName: "d", Phase: infrav1.ClaimReleasing}
		}),
		"relabelled": with(func(h *infrav1.ElementalHost) { h.Labels = nil }),
		"connected":  with(func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }),
		"clean":      with(func(h *infrav1.ElementalHost) { h.Status.Cleanliness = nil }),
		"approved":   with(func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending }),
		"uncordoned": with(func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }),
		"not paused": with(func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }),
		"upgraded":   with(func(h *infrav1.ElementalHost) { h.Status.Inventory = &infrav1.HostInventory{MemoryBytes: 1} }),
		"updated":    with(func(h *infrav1.ElementalHost) { h.Status.Agent = nil }),
		"unreserved": with(func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ClusterName: "d", Phase: infrav1.ClaimReserved}
		}),
	} {
		f.Expect(f.woken(before, free)).To(Equal([]string{"m"}), name)
	}
	f.Expect(f.woken(with(func(h *infrav1.ElementalHost) { h.Status.Agent.Version = "1" }), free)).To(BeEmpty(),
		"a report of a free host must wake no machine")
	f.Expect(f.woken(free, with(func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ClusterName: "d", Phase: infrav1.ClaimReserved}
	}))).To(BeEmpty(), "the host is reserved for another cluster")
}

// A machine that now belongs to another manager gets no host from this one, and does not
// delay other machines.
func TestMachinesOfAnotherManagerAreNotWoken(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	f.reconciler.WatchFilter = "mine"
	labelled := func(value string) func(*infrav1.ElementalMachine) {
		return func(m *infrav1.ElementalMachine) { m.Labels[clusterv1.WatchLabel] = value }
	}
	mine := func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { labelled("mine")(m) }
	moved, waits := f.waitingMachine("a", mine), f.waitingMachine("b", mine)
	controllertest.Change(f.Fixture, moved, labelled("theirs"))
	host := func(name string) *infrav1.ElementalHost {
		return f.Host(name, func(h *infrav1.ElementalHost) { h.Labels = map[string]string{clusterv1.WatchLabel: "mine"} })
	}
	f.Expect(f.woken(nil, host("h1"))).To(Equal([]string{waits.Name}), "even before the other machine is reconciled again")
	f.reconcile(moved)
	f.Expect(machine.WaitlistLen(f.reconciler)).To(Equal(1))
}

func TestPausedAndDeletedMachinesLeaveTheWaitlist(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	paused, deleted := f.waitingMachine("a"), f.waitingMachine("b")
	f.Expect(machine.WaitlistLen(f.reconciler)).To(Equal(2))
	controllertest.Change(f.Fixture, paused, func(m *infrav1.ElementalMachine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	f.reconcile(paused)
	f.Expect(machine.WaitlistLen(f.reconciler)).To(Equal(1))
	f.Delete(deleted)
	f.reconcile(deleted)
	f.Expect(machine.WaitlistLen(f.reconciler)).To(BeZero())
}

func TestReservationWakesTheControlPlane(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	f.waitingMachine("a-worker")
	f.waitingMachine("z-control-plane", controllertest.ControlPlane)
	free := f.Host("h1")
	reserved := free.DeepCopy()
	reserved.ResourceVersion += "1"
	reserved.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}
	f.Expect(f.woken(free, reserved)).To(Equal([]string{"z-control-plane"}))
}

func TestMachinesThatCantClaimAreNotWoken(t *testing.T) {
	f := newFixture(t)
	cluster, _ := f.Cluster("c")
	host := controllertest.FreeHost(f.Namespace, "h1", f.Clock.Now())
	f.waitingMachine("m")
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.Expect(f.woken(nil, host)).To(BeEmpty())
	controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	f.Expect(f.woken(nil, host)).To(Equal([]string{"m"}))
	f.Delete(cluster)
	f.Expect(f.woken(nil, host)).To(BeEmpty())
}

func TestOwnerIsWoken(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	host := f.Host("h1")
	_, m := bound(f, host, "m", false)
	before := host.DeepCopy()
	f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	f.Expect(f.woken(before, host)).To(Equal([]string{m.Name}))
	f.Expect(f.woken(host, host)).To(BeEmpty(), "a resync changes nothing")
}

func TestReturnOfAnOfflineSiteWakesMachinesBeingDeleted(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	silent, witness := f.Host("h1"), f.Host("h2")
	_, m := bound(f, silent, "m", true)
	_, w := bound(f, witness, "w", true)
	f.SetConnection(silent, infrav1.ConnectionDisconnected)
	f.SetConnection(witness, infrav1.ConnectionDisconnected)
	f.Delete(m)
	f.Expect(f.reconcile(m).RequeueAfter).To(BeZero())
	before := witness.DeepCopy()
	f.SetConnection(witness, infrav1.ConnectionConnected)
	f.Expect(f.woken(before, witness)).To(ConsistOf(m.Name, w.Name))
}

// A machine that lost its chosen host and found no other joins the waitlist.
func TestMachineThatLostItsHostIsWoken(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	lost := f.Host("h1", func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected })
	f.waitingMachine("m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.HostRef = &infrav1.HostReference{Name: "h1", ClaimID: "a"}
	})
	before := lost.DeepCopy()
	f.SetConnection(lost, infrav1.ConnectionConnected)
	f.Expect(f.woken(before, lost)).To(Equal([]string{"m"}))
}
