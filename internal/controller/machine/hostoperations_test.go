package machine_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func maintenance(h *infrav1.ElementalHost) {
	h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "new disk"}
}
func atWork(h *infrav1.ElementalHost) { h.Spec.Maintenance = nil }
func fence(h *infrav1.ElementalHost)  { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }

func TestMaintenanceSuspendsRemediation(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	mark := func() string {
		f.Refresh(owner)
		return owner.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	}
	f.ExpectCondition(machine, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)

	controllertest.Change(f.Fixture, host, maintenance)
	f.SetConnection(host, infrav1.ConnectionDisconnected)
	f.reconcile(machine)
	f.Expect(mark()).To(Equal("elemental-maintenance"))
	f.ExpectCondition(machine, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.Client.Forget()
	f.reconcile(machine)
	f.Expect(f.Client.Writes()).To(BeEmpty())

	controllertest.Change(f.Fixture, host, atWork)
	f.reconcile(machine)
	f.Expect(owner.Annotations).To(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
	f.Expect(mark()).To(BeEmpty())
	f.Expect(owner.Annotations).NotTo(HaveKey(clusterv1.MachineSkipRemediationAnnotation))

	t.Log("An annotation that another client set stays as it is")
	controllertest.Change(f.Fixture, owner, func(o *clusterv1.Machine) {
		o.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "upgrade"}
	})
	controllertest.Change(f.Fixture, host, maintenance)
	f.reconcile(machine)
	f.Expect(mark()).To(Equal("upgrade"))
	controllertest.Change(f.Fixture, host, atWork)
	f.reconcile(machine)
	f.Expect(mark()).To(Equal("upgrade"))
}

func TestBootstrapWaitsForMaintenance(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	_, machine := bound(f, host, "m", false)
	controllertest.Change(f.Fixture, host, maintenance)
	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.BootstrappedCondition, no, infrav1.MaintenanceReason)
	controllertest.Change(f.Fixture, host, atWork)
	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.BootstrappedCondition, no, infrav1.BootstrappingReason)
}

func TestReleaseWaitsForMaintenance(t *testing.T) {
	f := newFixture(t)
	host, witness := f.Host("h1"), f.Host("h2")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	bound(f, witness, "w", true)
	controllertest.Change(f.Fixture, host, maintenance)
	f.SetConnection(host, infrav1.ConnectionDisconnected)
	f.Delete(owner)
	f.Delete(machine)
	f.Clock.Step(time.Minute)
	f.Expect(f.reconcile(machine).RequeueAfter).To(BeZero())
	c := f.ExpectCondition(machine, infrav1.ReadyCondition, metav1.ConditionUnknown, infrav1.MaintenanceReason)
	f.Expect(c.Message).To(ContainSubstring("remove spec.maintenance from the ElementalHost"))
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
	f.Clock.Step(time.Hour)
	f.Expect(f.reconcile(machine).RequeueAfter).To(BeZero(), "time in maintenance must not count as waiting time")

	t.Log("A reset that has begun continues, and the machine's conditions show it")
	f.ReportOperation(host, infrav1.OperationReset, infrav1.OperationRunning)
	f.reconcile(machine)
	f.Expect(f.ExpectCondition(machine, infrav1.ReadyCondition, metav1.ConditionUnknown, infrav1.MaintenanceReason).Message).To(ContainSubstring("goes on"))

	t.Log("The waiting time begins when the maintenance ends")
	controllertest.Change(f.Fixture, host, atWork)
	f.Expect(f.reconcile(machine).RequeueAfter).To(Equal(20 * time.Second))
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.HostSilentReason)
	f.Clock.Step(5 * time.Second)
	f.Expect(f.reconcile(machine).RequeueAfter).To(Equal(15 * time.Second))
	f.Clock.Step(15 * time.Second)
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse())
}

func TestPreventedReset(t *testing.T) {
	f := newFixture(t)
	host, witness := f.Host("h1"), f.Host("h2")
	f.Cluster("c")
	_, machine := bound(f, host, "m", true)
	bound(f, witness, "w", true)
	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) {
		h.Annotations = map[string]string{infrav1.PreventResetAnnotation: "evidence"}
	})
	f.Delete(machine)
	f.setTimeOfDeletion(machine)
	f.reconcile(machine)
	f.Expect(f.reconcile(machine).RequeueAfter).To(BeZero())
	f.Expect(f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.ResetPreventedReason).Message).To(ContainSubstring(infrav1.PreventResetAnnotation))
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))

	t.Log("The annotation does not extend the wait for a disconnected host")
	f.SetConnection(host, infrav1.ConnectionDisconnected)
	f.reconcile(machine)
	f.Clock.Step(time.Minute)
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse())
}

func TestHold(t *testing.T) {
	for name, hold := range map[string]func(*fixture, *clusterv1.Cluster, *infrav1.ElementalCluster, *infrav1.ElementalMachine){
		"by policy": func(f *fixture, _ *clusterv1.Cluster, _ *infrav1.ElementalCluster, m *infrav1.ElementalMachine) {
			controllertest.Change(f.Fixture, m, func(m *infrav1.ElementalMachine) { m.Spec.Release.Policy = infrav1.ReleaseHold })
		},
		"by Cluster": func(f *fixture, c *clusterv1.Cluster, _ *infrav1.ElementalCluster, _ *infrav1.ElementalMachine) {
			controllertest.Change(f.Fixture, c, func(c *clusterv1.Cluster) {
				c.Annotations = map[string]string{infrav1.PreventResetAnnotation: ""}
			})
		},
		"by ElementalCluster": func(f *fixture, _ *clusterv1.Cluster, c *infrav1.ElementalCluster, _ *infrav1.ElementalMachine) {
			controllertest.Change(f.Fixture, c, func(c *infrav1.ElementalCluster) {
				c.Annotations = map[string]string{infrav1.PreventResetAnnotation: ""}
			})
		},
		"by ElementalCluster, Cluster gone": func(f *fixture, c *clusterv1.Cluster, i *infrav1.ElementalCluster, _ *infrav1.ElementalMachine) {
			controllertest.Change(f.Fixture, i, func(c *infrav1.ElementalCluster) {
				c.Annotations = map[string]string{infrav1.PreventResetAnnotation: ""}
			})
			f.Delete(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			host := f.Host("h1")
			cluster, infraCluster := f.Cluster("c")
			owner, machine := bound(f, host, "m", true)
			controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.Spec.Release.EraseDataDisks = infrav1.EraseZero })
			hold(f, cluster, infraCluster, machine)
			f.Delete(owner)
			f.Delete(machine)
			f.settle([]*infrav1.ElementalMachine{machine}, []*infrav1.ElementalHost{host})
			f.Expect(f.Exists(machine)).To(BeFalse(), "the machine must be deleted at once")
			remove(f, owner)
			f.settle(nil, []*infrav1.ElementalHost{host})
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Held m"))
			f.Expect(host.Annotations).NotTo(HaveKey(clusterctlv1.BlockMoveAnnotation), "a held host must not block clusterctl move")
			f.Expect(host.Spec.Claim.Erase).To(Equal(infrav1.EraseZero))
			f.Expect(f.Events()).To(ContainElement(HavePrefix("Normal ResetHeld ")))
		})
	}
}

func TestReleaseErases(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	f.Cluster("d", func(c *clusterv1.Cluster, i *infrav1.ElementalCluster) {
		c.Annotations = map[string]string{infrav1.PreventResetAnnotation: "not this one's"}
		i.Annotations = c.Annotations
	})
	_, machine := bound(f, host, "m", true)
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.Spec.Release.EraseDataDisks = infrav1.EraseDiscard })
	f.Delete(machine)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
	f.Expect(host.Spec.Claim.Erase).To(Equal(infrav1.EraseDiscard))
}

// As documented, one command deletes a Machine although its host is disconnected and is the
// only one in its cluster. When the host returns, it is reset first.
func TestForcedRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		provisioned bool
		change      func(*infrav1.ElementalHost)
		machine     func(*infrav1.ElementalMachine)
	}{
		"dead":                 {provisioned: true},
		"never bootstrapped":   {},
		"in maintenance":       {provisioned: true, change: maintenance},
		"with policy Hold":     {provisioned: true, machine: func(m *infrav1.ElementalMachine) { m.Spec.Release.Policy = infrav1.ReleaseHold }},
		"with prevented reset": {provisioned: true, change: func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{infrav1.PreventResetAnnotation: ""} }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			host := f.Host("h1")
			f.Cluster("c")
			owner, machine := bound(f, host, "m", tc.provisioned)
			f.SetConnection(host, infrav1.ConnectionDisconnected)
			if tc.machine != nil {
				controllertest.Change(f.Fixture, machine, tc.machine)
			}
			f.Events()
			controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) {
				fence(h)
				if tc.change != nil {
					tc.change(h)
				}
			})
			machines, hosts := []*infrav1.ElementalMachine{machine}, []*infrav1.ElementalHost{host}
			f.settle(machines, hosts)
			f.Refresh(owner)
			f.Expect(owner.DeletionTimestamp.IsZero()).To(BeFalse(), "the fence must delete the Machine")
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Releasing m"))
			f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.FencedReason)
			f.Expect(f.Events()).To(ContainElements(
				And(HavePrefix("Warning Fenced "), ContainSubstring("Deleted Machine m"), ContainSubstring("dead")),
				And(HavePrefix("Warning Fenced "), ContainSubstring("spec.fence: dead"))))

			f.Delete(machine) // as core does, after its hooks and the drain
			f.settle(machines, hosts)
			f.Expect(f.Exists(machine)).To(BeFalse(), "the machine must not wait for the reset")
			remove(f, owner)
			f.settle(nil, hosts)
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Releasing m"), "the claim records that the host must be reset when it returns")
		})
	}
}

// A fence ends the wait of a machine that is already being deleted.
func TestFenceEndsTheWait(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	f.SetConnection(host, infrav1.ConnectionDisconnected)
	f.Delete(owner)
	f.Delete(machine)
	f.reconcile(machine)
	f.Clock.Step(1000 * time.Hour)
	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.HostSilentReason)
	controllertest.Change(f.Fixture, host, fence)
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse())
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}

// A fence takes precedence over the release policy Hold, whether the fence or the deletion
// is observed first.
func TestFenceOverridesHold(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	_, machine := bound(f, host, "m", true)
	controllertest.Change(f.Fixture, machine, func(m *infrav1.ElementalMachine) { m.Spec.Release.Policy = infrav1.ReleaseHold })
	f.Delete(machine)
	controllertest.Change(f.Fixture, host, fence)
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse())
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}

// A fence that only a stale cache shows deletes nothing.
func TestRemovedFence(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	controllertest.Change(f.Fixture, host, fence)
	stale := host.DeepCopy()
	controllertest.Change(f.Fixture, host, func(h *infrav1.ElementalHost) { h.Spec.Fence = nil })
	_, err := withCache(f, staleHosts(f, stale)).Reconcile(f.Ctx, request(machine))
	f.Expect(err).NotTo(HaveOccurred())
	f.Refresh(owner)
	f.Expect(owner.DeletionTimestamp.IsZero()).To(BeTrue())
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
}

// A fence must not delete a new Machine with the name of the former one.
func TestFenceDeletesNoMachineOfTheSameName(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := bound(f, host, "m", true)
	f.Delete(owner)
	remove(f, owner)
	fresh := &clusterv1.Machine{ObjectMeta: f.Meta("m"), Spec: *owner.Spec.DeepCopy()}
	f.Create(fresh)
	controllertest.Change(f.Fixture, host, fence)
	f.reconcile(machine)
	f.Refresh(fresh)
	f.Expect(fresh.DeletionTimestamp.IsZero()).To(BeTrue())
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}
