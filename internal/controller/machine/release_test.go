package machine_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// bound creates a Machine whose ElementalMachine has claimed the host, and reports a
// successful bootstrap if provisioned.
func bound(f *fixture, host *infrav1.ElementalHost, name string, provisioned bool) (*clusterv1.Machine, *infrav1.ElementalMachine) {
	f.T.Helper()
	owner, machine := f.Machine("c", name, func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
		m.Spec.HostName = host.Name
		m.Spec.Release.DisconnectedTimeoutSeconds = ptr.To[int32](20)
	})
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound " + name))
	if provisioned {
		f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
		f.reconcile(machine)
		f.Expect(machine.Spec.ProviderID).NotTo(BeEmpty())
	}
	return owner, machine
}

// remove removes the finalizer of a Machine that is being deleted, as Cluster API does.
func remove(f *fixture, owner *clusterv1.Machine) {
	f.T.Helper()
	controllertest.Change(f.Fixture, owner, func(o *clusterv1.Machine) { o.Finalizers = nil })
}

func TestReleaseInOrder(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	both := func() { f.settle([]*infrav1.ElementalMachine{machine}, []*infrav1.ElementalHost{host}) }

	f.Delete(owner)
	f.Delete(machine)
	both()
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
	f.Expect(host.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.WaitingForResetReason)

	f.ReportOperation(host, infrav1.OperationReset, infrav1.OperationFailed)
	both()
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.ResetFailedReason)

	f.Report(host, func(s *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(s, infrav1.HostOperation{Type: infrav1.OperationReset, ID: host.Spec.Claim.ID, State: infrav1.OperationSucceeded})
		s.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/var/lib/etcd"}}
	})
	both()
	f.Expect(f.Exists(machine)).To(BeTrue(), "the host is reset, but not clean")
	f.Expect(f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.WaitingForResetReason).Message).To(ContainSubstring("/var/lib/etcd"))

	f.Report(host, func(s *infrav1.ElementalHostStatus) {
		s.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessClean}
	})
	both()
	f.Expect(f.Exists(machine)).To(BeFalse())
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"), "Cluster API deletes the Node only now; before that the host must not join under its name")
	f.ExpectCondition(host, infrav1.AvailableCondition, no, infrav1.WaitingForMachineGone)

	remove(f, owner)
	both()
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("free"))
	f.Expect(host.Annotations).NotTo(HaveKey(clusterctlv1.BlockMoveAnnotation))
	f.ExpectCondition(host, infrav1.AvailableCondition, yes, infrav1.AvailableReason)
}

func TestDeletionInEveryState(t *testing.T) {
	for name, tc := range map[string]struct {
		machine func(*fixture, *infrav1.ElementalHost) *infrav1.ElementalMachine
		want    string
	}{
		"waiting for data": {func(f *fixture, _ *infrav1.ElementalHost) *infrav1.ElementalMachine {
			_, m := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
				o.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
					APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "m"}}
			})
			f.reconcile(m)
			return m
		}, "free"},
		"never reconciled": {func(f *fixture, _ *infrav1.ElementalHost) *infrav1.ElementalMachine {
			_, m := f.Machine("c", "m")
			return m
		}, "free"},
		"host chosen, not claimed": {func(f *fixture, h *infrav1.ElementalHost) *infrav1.ElementalMachine {
			_, m := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
				m.Finalizers = []string{infrav1.MachineFinalizer}
				m.Spec.HostRef = &infrav1.HostReference{Name: h.Name, ClaimID: "a"}
			})
			return m
		}, "free"},
		"bootstrapping": {func(f *fixture, h *infrav1.ElementalHost) *infrav1.ElementalMachine {
			_, m := bound(f, h, "m", false)
			return m
		}, "Releasing m"},
		"provisioned": {func(f *fixture, h *infrav1.ElementalHost) *infrav1.ElementalMachine {
			_, m := bound(f, h, "m", true)
			return m
		}, "Releasing m"},
		"a second host bound in its name": {func(f *fixture, h *infrav1.ElementalHost) *infrav1.ElementalMachine {
			_, m := bound(f, f.Host("h2"), "m", false)
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ID: "stray", MachineName: "m", ClusterName: "c", Phase: infrav1.ClaimBound}
			})
			return m
		}, "Releasing m"},
		"a host of a namesake in another cluster": {func(f *fixture, h *infrav1.ElementalHost) *infrav1.ElementalMachine {
			_, m := bound(f, f.Host("h2"), "m", false)
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
				h.Spec.Claim = &infrav1.HostClaim{ID: "other", MachineName: "m", ClusterName: "d", Phase: infrav1.ClaimBound}
			})
			return m
		}, "Bound m"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			host := f.Host("h1")
			f.Cluster("c")
			machine := tc.machine(f, host)
			f.Delete(machine)
			if f.Exists(machine) {
				f.reconcile(machine)
			}
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal(tc.want))
			f.Expect(f.Exists(machine)).To(Equal(len(machine.Finalizers) > 0 && machine.Spec.HostRef != nil && tc.want != "free"))
		})
	}
}

func TestDeletionWithoutOwnerOrCluster(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	cluster, _ := f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	f.Delete(owner)
	remove(f, owner)
	f.Delete(cluster)
	f.Delete(machine)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}

// A machine that is being deleted waits for its disconnected host. The waiting time counts
// only while another host of the cluster is connected, which shows that the network is up
// (decisions 2, 31).
func TestDisconnectedHost(t *testing.T) {
	f := newFixture(t)
	host, witness := f.Host("h1"), f.Host("h2")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	bound(f, witness, "w", true)
	f.SetConnection(witness, infrav1.ConnectionDisconnected)
	f.SetConnection(host, infrav1.ConnectionDisconnected)
	f.Delete(owner)
	f.Delete(machine)

	f.Clock.Step(time.Hour)
	f.Expect(f.reconcile(machine).RequeueAfter).To(BeZero(), "the site is offline: only an event ends the wait")
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.HostSilentReason)

	f.SetConnection(witness, infrav1.ConnectionConnected)
	f.Expect(f.reconcile(machine).RequeueAfter).To(Equal(20 * time.Second))
	f.Clock.Step(19 * time.Second)
	f.Expect(f.reconcile(machine).RequeueAfter).To(Equal(time.Second))

	f.SetConnection(witness, infrav1.ConnectionDisconnected)
	f.Clock.Step(time.Minute)
	f.Expect(f.reconcile(machine).RequeueAfter).To(BeZero(), "the site is offline again")
	f.SetConnection(witness, infrav1.ConnectionConnected)
	f.Expect(f.reconcile(machine).RequeueAfter).To(Equal(20*time.Second), "the time counts from the return of the site")
	f.Clock.Step(20 * time.Second)
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse())
	f.Expect(f.Events()).To(ContainElement(ContainSubstring(infrav1.HostSilentReason)))

	t.Log("The machine is deleted; the claim stays, and does not block clusterctl move")
	remove(f, owner)
	machines, hosts := []*infrav1.ElementalMachine{machine}, []*infrav1.ElementalHost{host}
	f.settle(machines, hosts)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
	f.Expect(host.Annotations).NotTo(HaveKey(clusterctlv1.BlockMoveAnnotation))

	t.Log("When the host returns, it is reset first")
	f.SetConnection(host, infrav1.ConnectionConnected)
	f.settle(machines, hosts)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
	f.ExpectCondition(host, infrav1.AvailableCondition, no, infrav1.ResettingReason)
	f.ReportOperation(host, infrav1.OperationReset, infrav1.OperationSucceeded)
	f.settle(machines, hosts)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("free"))
}

// If a user removed a Machine's finalizer, a new Machine of the same name has its own host,
// which must not be released.
func TestReleaseSparesTheHostOfANewMachine(t *testing.T) {
	f := newFixture(t)
	host, fresh := f.Host("h1"), f.Host("h2")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	f.Delete(owner)
	remove(f, owner)
	namesake := &infrav1.ElementalMachine{ObjectMeta: f.Meta("m-2"), Spec: infrav1.ElementalMachineSpec{
		HostRef: &infrav1.HostReference{Name: fresh.Name, ClaimID: "2"},
	}}
	f.Create(namesake)
	stray := f.Host("h3")
	for h, id := range map[*infrav1.ElementalHost]string{fresh: "2", stray: "3"} {
		controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: id, ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound}
		})
	}
	f.Delete(machine)
	f.reconcile(machine)
	claims := map[string]string{}
	for _, h := range []*infrav1.ElementalHost{host, fresh, stray} {
		f.Refresh(h)
		claims[h.Name] = claimOf(h)
	}
	f.Expect(claims).To(Equal(map[string]string{"h1": "Releasing m", "h2": "Bound m", "h3": "Releasing m"}), "h3 was bound for the machine under another claim ID")
}

// setTimeOfDeletion sets the clock to the time that the API server gave the deletion, which is
// that of the real clock.
func (f *fixture) setTimeOfDeletion(machine *infrav1.ElementalMachine) {
	f.T.Helper()
	f.Refresh(machine)
	f.Clock.SetTime(machine.DeletionTimestamp.Time)
}

func TestDisconnectedHostThatReturnsInTime(t *testing.T) {
	f := newFixture(t)
	host, witness := f.Host("h1"), f.Host("h2")
	f.Cluster("c")
	_, machine := bound(f, host, "m", true)
	bound(f, witness, "w", true)
	f.SetConnection(host, infrav1.ConnectionDisconnected)
	f.Delete(machine)
	f.setTimeOfDeletion(machine)
	f.Expect(f.reconcile(machine).RequeueAfter).To(Equal(20 * time.Second))
	f.SetConnection(host, infrav1.ConnectionConnected)
	f.Clock.Step(time.Hour)
	f.Expect(f.reconcile(machine).RequeueAfter).To(BeZero(), "the wait for a connected host must have no limit")
	f.Expect(f.Exists(machine)).To(BeTrue())
}

func TestDisconnectedHostOfADeletedCluster(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	cluster, _ := f.Cluster("c", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
		c.Finalizers = []string{clusterv1.ClusterFinalizer}
	})
	_, machine := bound(f, host, "m", true)
	f.SetConnection(host, infrav1.ConnectionDisconnected)
	f.Delete(machine)
	f.setTimeOfDeletion(machine)
	f.Expect(f.reconcile(machine).RequeueAfter).To(BeZero(), "without another host the wait must have no limit")
	f.Delete(cluster)
	f.Expect(f.reconcile(machine).RequeueAfter).To(Equal(20 * time.Second))
	f.Clock.Step(20 * time.Second)
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse())
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}
