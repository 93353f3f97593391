package machine_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func labelled(labels map[string]string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) { h.Labels = labels }
}

func TestHostMatchesTheMachinesConstraints(t *testing.T) {
	for name, tc := range map[string]struct {
		ask  func(*clusterv1.Machine, *infrav1.ElementalMachine)
		want string
	}{
		"anything: first by name": {ask: func(*clusterv1.Machine, *infrav1.ElementalMachine) {}, want: "h1"},
		"pin":                     {ask: func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { m.Spec.HostName = "h3" }, want: "h3"},
		"labels": {ask: func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
			m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "big"}}
		}, want: "h2"},
		"expression": {ask: func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
			m.Spec.HostSelector = &infrav1.HostSelector{MatchExpressions: []infrav1.HostSelectorRequirement{
				{Key: "size", Operator: metav1.LabelSelectorOpIn, Values: []string{"big"}},
				{Key: infrav1.DefaultFailureDomainLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}},
			}}
		}, want: "h3"},
		"inventory": {ask: func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
			m.Spec.HostSelector = &infrav1.HostSelector{
				MatchLabels: infrav1.Labels{"size": "big"}, Expression: "host.inventory.cpu.cores >= 8",
			}
		}, want: "h3"},
		"failure domain": {ask: func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.FailureDomain = "b" }, want: "h3"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Host("h3", cores(8), labelled(map[string]string{"size": "big", infrav1.DefaultFailureDomainLabel: "b"}))
			f.Host("h2", cores(4), labelled(map[string]string{"size": "big", infrav1.DefaultFailureDomainLabel: "a"}))
			f.Host("h1", cores(16))
			f.Cluster("c")
			_, machine := f.Machine("c", "m", tc.ask)
			f.reconcile(machine)
			f.Expect(machine.Spec.HostRef).NotTo(BeNil())
			f.Expect(machine.Spec.HostRef.Name).To(Equal(tc.want))
		})
	}
}

// A machine with an image waits for a host with Elemental OS, and says so.
func TestMachineWithAnImageWaitsForElementalOS(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1", cores(4))
	f.Cluster("c")
	_, machine := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.OSImage = "oci:registry.example.com/os:2"
	})
	f.reconcile(machine)
	f.Expect(machine.Spec.HostRef).To(BeNil())
	f.Expect(f.ExpectCondition(machine, infrav1.HostClaimedCondition, metav1.ConditionFalse, infrav1.NoHostReason).Message).To(
		Equal("None of 1 hosts can be used: 1 without an image of Elemental OS"))
	f.Report(host, func(s *infrav1.ElementalHostStatus) { s.Inventory.OS.Image = "oci://registry.example.com/os:1" })
	f.Clock.Step(time.Minute)
	f.reconcile(machine)
	f.Expect(machine.Spec.HostRef).NotTo(BeNil())
}

func cores(n int32) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: n}}
	}
}

// An expression that admission would reject selects no host, and the condition contains
// the compiler's error.
func TestExpressionThatCantBeCompiled(t *testing.T) {
	f := newFixture(t)
	f.Host("h1", cores(8))
	f.Cluster("c")
	_, machine := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.HostSelector = &infrav1.HostSelector{Expression: "host.inventory.cpu.corez >= 8"}
	})
	f.reconcile(machine)
	f.Expect(machine.Spec.HostRef).To(BeNil())
	f.Expect(f.ExpectCondition(machine, infrav1.HostClaimedCondition, no, infrav1.NoHostReason).Message).
		To(Equal("No host can be selected: compiling hostSelector.expression: line 1, column 19: undefined field 'corez'; make another template or machine"))
}

func TestClusterNamesTheFailureDomainLabel(t *testing.T) {
	f := newFixture(t)
	f.Host("h1", labelled(map[string]string{infrav1.DefaultFailureDomainLabel: "a"}))
	f.Host("h2", labelled(map[string]string{"rack": "a"}))
	f.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.FailureDomains.HostLabel = "rack" })
	_, machine := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.FailureDomain = "a" })
	f.reconcile(machine)
	f.Expect(machine.Spec.HostRef.Name).To(Equal("h2"))
}

func TestUnavailableHostsAreCountedAndNotClaimed(t *testing.T) {
	f := newFixture(t)
	zone := map[string]string{infrav1.DefaultFailureDomainLabel: "a"}
	add := func(name string, change func(*infrav1.ElementalHost)) {
		f.Host(name, labelled(zone), change)
	}
	add("cordoned", func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} })
	add("pending-1", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending })
	add("pending-2", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending })
	add("rejected", func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected })
	add("away", func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected })
	add("never", func(h *infrav1.ElementalHost) { h.Status.Connection = nil })
	add("dirty", func(h *infrav1.ElementalHost) {
		h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/etc/kubernetes"}}
	})
	add("unreported", func(h *infrav1.ElementalHost) { h.Status.Cleanliness = nil })
	add("reserved", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ClusterName: "d", Phase: infrav1.ClaimReserved}
	})
	add("own-reserved", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}
	})
	add("claimed", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "x", MachineName: "x", ClusterName: "d", Phase: infrav1.ClaimBound}
	})
	add("resetting", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "y", MachineName: "y", ClusterName: "d", Phase: infrav1.ClaimReleasing}
	})
	add("paused", func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	f.Host("elsewhere", labelled(map[string]string{infrav1.DefaultFailureDomainLabel: "b"}))
	f.Host("unlabelled")
	f.Cluster("c")
	_, worker := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.FailureDomain = "a" })

	result := f.reconcile(worker)
	f.Expect(worker.Spec.HostRef).To(BeNil())
	f.Expect(result.RequeueAfter).To(BeNumerically(">", time.Minute), "events wake the machine before the timer does")
	c := f.ExpectCondition(worker, infrav1.HostClaimedCondition, no, infrav1.NoHostInFailureDomainReason)
	f.Expect(c.Message).To(HaveSuffix(". None of 15 hosts can be used: 1 AgentDisconnected, 1 AgentNeverConnected, 1 Claimed, 1 Cordoned, " +
		"1 LeftoversFound, 1 NotReported, 1 Paused, 2 PendingApproval, 1 Rejected, 2 ReservedForCluster, 1 Resetting, 2 in another failure domain"))

	f.Client.Forget()
	f.Host("elsewhere-2", labelled(map[string]string{infrav1.DefaultFailureDomainLabel: "b"}))
	f.reconcile(worker)
	f.Expect(f.Client.Writes()).To(BeEmpty(), "only the numbers in the message changed: the status must not be written")

	f.Host("cordon-off", labelled(zone))
	f.reconcile(worker)
	f.Expect(worker.Spec.HostRef.Name).To(Equal("cordon-off"))
}

func TestNoHostsAtAll(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	_, machine := f.Machine("c", "m")
	f.reconcile(machine)
	f.Expect(f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.NoHostReason).Message).To(ContainSubstring("ElementalRegistration"))
	f.Expect(f.Events()).To(ContainElement(ContainSubstring(infrav1.NoHostReason)))
}

// If the endpoint is the address of one host, the first control-plane machine must claim
// that host. Other machines may claim any other host.
func TestFirstControlPlaneMachineClaimsTheReservedHost(t *testing.T) {
	f := newFixture(t)
	f.Host("h1")
	reserved := f.Host("h2", func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}
	})
	f.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
			Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "h2", ChosenAt: metav1.NewTime(f.Clock.Now())},
		}
	})
	_, worker := f.Machine("c", "worker")
	_, first := f.Machine("c", "first", controllertest.ControlPlane)
	_, second := f.Machine("c", "second", controllertest.ControlPlane)

	f.SetConnection(reserved, infrav1.ConnectionDisconnected)
	f.reconcile(first)
	f.Expect(first.Spec.HostRef).To(BeNil(), "another host does not have the address of the endpoint")
	f.Expect(f.ExpectCondition(first, infrav1.HostClaimedCondition, no, infrav1.NoHostReason).Message).To(
		And(ContainSubstring("h2"), ContainSubstring(infrav1.DisconnectedReason)))

	f.SetConnection(reserved, infrav1.ConnectionConnected)
	f.reconcile(worker)
	f.Expect(worker.Spec.HostRef.Name).To(Equal("h1"))
	f.Host("h3")
	f.reconcile(first)
	f.Expect(first.Spec.HostRef.Name).To(Equal("h2"))
	f.Refresh(reserved)
	f.Expect(claimOf(reserved)).To(Equal("Bound first"))
	f.reconcile(second)
	f.Expect(second.Spec.HostRef.Name).To(Equal("h3"))
}

func TestFirstControlPlaneMachineWaitsForTheReservation(t *testing.T) {
	f := newFixture(t)
	f.Host("h1")
	f.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "h1", ChosenAt: metav1.NewTime(f.Clock.Now())}
	})
	_, first := f.Machine("c", "first", controllertest.ControlPlane)
	f.reconcile(first)
	f.Expect(first.Spec.HostRef).To(BeNil())
	f.Expect(f.ExpectCondition(first, infrav1.HostClaimedCondition, no, infrav1.NoHostReason).Message).To(ContainSubstring("not yet reserved"))
}

// Once the control plane is initialized the reservation is no longer needed.
func TestControlPlaneMachinesClaimAnyHostOnceInitialized(t *testing.T) {
	f := newFixture(t)
	f.Host("h1")
	f.Cluster("c", func(c *clusterv1.Cluster, ec *infrav1.ElementalCluster) {
		c.Status.Initialization.ControlPlaneInitialized = new(true)
		ec.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "gone", ChosenAt: metav1.NewTime(f.Clock.Now())}
	})
	_, m := f.Machine("c", "m", controllertest.ControlPlane)
	f.reconcile(m)
	f.Expect(m.Spec.HostRef.Name).To(Equal("h1"))
}

func TestMachineOfADeletedOwnerClaimsNothing(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	owner, machine := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Finalizers = []string{clusterv1.MachineFinalizer}
	})
	f.Delete(owner)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("free"))
}

// The machine behind a missing ElementalHost may have run the bootstrap data, and may
// still be up.
func TestMissingHostIsNotReplaced(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Cluster("c")
	_, machine := f.Machine("c", "m")
	f.reconcile(machine)
	f.Expect(machine.Spec.HostRef.Name).To(Equal("h1"))
	other := f.Host("h2")
	f.Delete(host)
	f.reconcile(machine)
	c := f.ExpectCondition(machine, infrav1.ReadyCondition, no, infrav1.HostMissingReason)
	f.Expect(c.Message).To(ContainSubstring("delete the Machine"))
	f.Refresh(other)
	f.Expect(claimOf(other)).To(Equal("free"))

	f.Delete(machine)
	f.reconcile(machine)
	f.Expect(f.Exists(machine)).To(BeFalse(), "a missing host must not block the deletion of the Machine")
}

// The manager stopped between choosing and claiming. In the meantime the host was claimed
// by another machine or became unavailable.
func TestAnotherHostIsChosenIfTheFirstIsLost(t *testing.T) {
	for name, lose := range map[string]func(*infrav1.ElementalHost){
		"claimed by another": func(h *infrav1.ElementalHost) {
			h.Spec.Claim = &infrav1.HostClaim{ID: "x", MachineName: "x", ClusterName: "c", Phase: infrav1.ClaimBound}
		},
		"disconnected": func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected },
		"cordoned":     func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			lost := f.Host("h1", lose)
			f.Host("h2")
			f.Cluster("c")
			_, machine := f.Machine("c", "m", func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
				m.Spec.HostRef = &infrav1.HostReference{Name: "h1", ClaimID: "a"}
			})
			before := claimOf(lost)
			f.reconcile(machine)
			f.Expect(machine.Spec.HostRef.Name).To(Equal("h2"))
			f.Expect(machine.Spec.HostRef.ClaimID).NotTo(Equal("a"), "an operation of the former claim must not count for the new one")
			f.Refresh(lost)
			f.Expect(claimOf(lost)).To(Equal(before))
		})
	}
}
