package cluster_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// reconnectCoreManagers acts as Cluster API after its connection was rejected.
func (f *fleet) reconnectCoreManagers() {
	f.T.Helper()
	f.Clock.Step(50 * time.Second)
	f.setConnectionProbe(no)
	f.reconcileUntilStable()
	f.Clock.Step(30 * time.Second)
	f.setConnectionProbe(yes)
	f.reconcileUntilStable()
}

// The endpoint leaves a Machine that is being deleted while its API server still answers.
// The Machine's deletion waits until nothing uses the former endpoint.
func TestEndpointLeavesBeforeItsMachine(t *testing.T) {
	f := newFleet(t)
	f.Delete(f.machines["h1"])
	f.reconcile()
	f.expectEndpoint(2)
	f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveMachineDeleted))
	f.Expect(f.hooked()).To(Equal([]string{"m1", "m2"}))
	former := func() infrav1.FormerEndpoint {
		f.Refresh(f.infra)
		return f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0]
	}
	rejected := func() bool { since := former().RejectedSince; return !since.IsZero() }
	f.reconcileUntilStable()
	f.Expect(rejected()).To(BeFalse(), "hosts still use the former endpoint")
	f.runAgents()
	f.Clock.Step(time.Second)
	f.reconcileUntilStable()
	f.Expect(rejected()).To(BeTrue())
	f.Expect(former().RejectedSince.Time).To(BeTemporally("==", f.Clock.Now()))
	c := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(ContainSubstring("host h1, which does not reject connections to 10.0.0.1 yet"))
	f.runAgents()
	f.reconcileUntilStable()
	c = f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(ContainSubstring("Cluster API, which may still be connected to 10.0.0.1"))
	f.Expect(f.hooked()).To(ContainElement("m1"), "Cluster API is still connected to the former endpoint")
	f.reconnectCoreManagers()
	f.Expect(f.lastMove().CompletedAt.Time).To(BeTemporally("==", f.Clock.Now()))
	f.Expect(f.hooked()).To(Equal([]string{"m2"}))
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, yes, infrav1.EndpointFollowedReason)
	f.Expect(rejected()).To(BeTrue(), "the rejection lasts as long as the host")

	// The host returns to the cluster as another Node.
	controllertest.Change(f.Fixture, f.hostNamed("h1"), func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing })
	f.reconcileUntilStable()
	f.Expect(rejected()).To(BeFalse())
	f.Client.Forget()
	f.Expect(f.reconcile()).To(BeZero())
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

// Cluster API may be disconnected, or stay connected to the former endpoint. A move does
// not wait for it forever.
func TestPlannedMoveEnds(t *testing.T) {
	begin := func(t *testing.T) *fleet {
		f := newFleet(t)
		f.Delete(f.machines["h1"])
		f.converge()
		f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0].RejectedSince.Time).To(BeTemporally("==", f.Clock.Now()))
		f.Expect(f.hooked()).To(Equal([]string{"m1", "m2"}))
		return f
	}
	t.Run("with a probe that never failed", func(t *testing.T) {
		f := begin(t)
		f.Clock.Step(time.Minute)
		f.Expect(f.reconcile().RequeueAfter).To(Equal(time.Minute))
		f.Clock.Step(time.Minute - time.Second)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(ContainElement("m1"))
		f.Clock.Step(time.Second)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m2"}))
	})
	t.Run("with a probe that fails", func(t *testing.T) {
		f := begin(t)
		f.setConnectionProbe(no)
		f.Clock.Step(5*time.Minute - time.Second)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(ContainElement("m1"))
		f.Expect(f.reconcile().RequeueAfter).To(Equal(time.Second))
		f.Clock.Step(time.Second)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m2"}))
	})
	t.Run("with a host that does not reject", func(t *testing.T) {
		f := newFleet(t)
		f.Delete(f.machines["h1"])
		f.reconcileUntilStable()
		f.runAgents()
		f.reconcileUntilStable()
		f.Clock.Step(5 * time.Minute)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m2"}))
	})
	t.Run("with a host that does not follow", func(t *testing.T) {
		f := newFleet(t)
		f.stopped["h4"] = true
		f.Delete(f.machines["h1"])
		f.converge()
		f.Clock.Step(time.Minute)
		f.Expect(f.reconcile().RequeueAfter).To(Equal(14 * time.Minute))
		f.Clock.Step(14*time.Minute - time.Second)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m1", "m2"}))
		f.Clock.Step(time.Second)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m2"}))
		f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeTrue())
		f.Expect(f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason).Message).
			To(ContainSubstring("host h4"))
	})
	t.Run("when the former host dies", func(t *testing.T) {
		f := begin(t)
		f.stop("h1")
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m2"}))
	})
}

// A host that joins through the former endpoint may finish before it is rejected.
func TestRejectionWaitsForJoins(t *testing.T) {
	f := newFleet(t)
	// The API server sets a Machine's creation time: it is older than a move of tomorrow.
	f.Clock.Step(24 * time.Hour)
	f.node(5, infrav1.RoleWorker)
	f.ReportOperation(f.hostNamed("h5"), infrav1.OperationBootstrap, infrav1.OperationRunning)
	f.Delete(f.machines["h1"])
	f.converge()
	rejected := func() bool {
		f.Refresh(f.infra)
		return !f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0].RejectedSince.Time.IsZero()
	}
	f.Expect(rejected()).To(BeFalse())
	f.Expect(f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason).Message).
		To(ContainSubstring("host h5, which is being bootstrapped with data that is older"))
	f.Clock.Step(time.Minute)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(4 * time.Minute))
	f.Clock.Step(4 * time.Minute)
	f.reconcileUntilStable()
	f.Expect(rejected()).To(BeTrue(), "the wait is limited")
}

func TestDeadHostsMachineKeepsItsHookBriefly(t *testing.T) {
	f := newFleet(t)
	f.stop("h1")
	f.reconcileUntilStable()
	f.Delete(f.machines["h1"])
	f.reconcile()
	f.expectEndpoint(2)
	f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveMachineDeleted))
	f.Expect(f.hooked()).To(Equal([]string{"m1", "m2"}))
	f.runAgents()
	f.reconcileUntilStable()
	f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
	f.Expect(f.hooked()).To(Equal([]string{"m2"}))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0].RejectedSince.Time.IsZero()).To(BeTrue())
}

func TestMachineIsReleasedWithoutCandidate(t *testing.T) {
	alone := func(t *testing.T) *fleet {
		f := newFleet(t)
		for _, name := range []string{"h2", "h3"} {
			f.Delete(f.machines[name])
			controllertest.Change(f.Fixture, f.machines[name], func(m *clusterv1.Machine) { m.Finalizers = nil })
			controllertest.Change(f.Fixture, f.hostNamed(name), func(h *infrav1.ElementalHost) { h.Spec.Claim = nil })
		}
		return f
	}
	t.Run("when it is alone", func(t *testing.T) {
		f := alone(t)
		f.Delete(f.machines["h1"])
		f.reconcileUntilStable()
		f.expectEndpoint(1)
		f.Expect(f.hooked()).To(BeEmpty())
		f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoMoveCandidateReason)
		f.Expect(f.Events()).To(ContainElement(And(ContainSubstring("Warning"), ContainSubstring("Machine m1 is let go"), ContainSubstring("no other control-plane host"))))
	})
	t.Run("when the next one does not come up in time", func(t *testing.T) {
		f := alone(t)
		f.node(5, infrav1.RoleControlPlane)
		f.Delete(f.machines["h1"])
		deleted := func() time.Time { f.Refresh(f.machines["h1"]); return f.machines["h1"].DeletionTimestamp.Time }()
		f.Clock.SetTime(deleted)
		f.Expect(f.reconcile().RequeueAfter).To(Equal(5*time.Minute), "the host may become a candidate")
		f.Expect(f.hooked()).To(Equal([]string{"m1"}))
		c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoMoveCandidateReason)
		f.Expect(c.Message).To(ContainSubstring("h5: it has not said yet whether its API server answers"))
		f.Clock.Step(5 * time.Minute)
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(BeEmpty())
	})
	t.Run("unless the next one comes up", func(t *testing.T) {
		f := alone(t)
		f.node(5, infrav1.RoleControlPlane)
		f.Delete(f.machines["h1"])
		f.reconcileUntilStable()
		f.runAgents()
		f.reconcileUntilStable()
		f.expectEndpoint(5)
	})
	for name, end := range map[string]func(*fleet){
		"with the Cluster": func(f *fleet) {
			controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Finalizers = []string{clusterv1.ClusterFinalizer} })
			f.Delete(f.cluster)
		},
		"with the control plane": func(f *fleet) { f.deleteControlPlane() },
		"with the ElementalCluster": func(f *fleet) {
			controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Finalizers = append(c.Finalizers, "test/waits") })
			f.Delete(f.infra)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.Delete(f.machines["h1"])
			end(f)
			f.reconcileUntilStable()
			f.Expect(f.hooked()).To(BeEmpty())
			f.expectEndpoint(1)
		})
	}
}

// Only the Machine of the endpoint's host carries the hook.
func TestHooks(t *testing.T) {
	hook := func(f *fleet, host string) {
		controllertest.Change(f.Fixture, f.machines[host], func(m *clusterv1.Machine) {
			m.Annotations = map[string]string{infrav1.EndpointHookAnnotation: ""}
		})
	}
	t.Run("hooks of other Machines are removed", func(t *testing.T) {
		f := newFleet(t)
		hook(f, "h3")
		hook(f, "h4")
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m1"}))
	})
	t.Run("a removed hook is added again", func(t *testing.T) {
		f := newFleet(t)
		controllertest.Change(f.Fixture, f.machines["h1"], func(m *clusterv1.Machine) { delete(m.Annotations, infrav1.EndpointHookAnnotation) })
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(Equal([]string{"m1"}))
	})
	t.Run("no hook for an endpoint of the user", func(t *testing.T) {
		f := newFleet(t)
		controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeExternal}
		})
		f.reconcileUntilStable()
		f.Expect(f.hooked()).To(BeEmpty())
		f.Delete(f.machines["h1"])
		f.stop("h1")
		f.Clock.Step(time.Hour)
		f.reconcileUntilStable()
		f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))
		f.Expect(f.cluster.Spec.ControlPlaneEndpoint.Host).To(Equal("10.0.0.1"))
		f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	})
	t.Run("no hook for a worker, and the endpoint leaves its host", func(t *testing.T) {
		f := newFleet(t)
		controllertest.Change(f.Fixture, f.hostNamed("h1"), func(h *infrav1.ElementalHost) {
			h.Spec.Claim.ID, h.Spec.Claim.MachineName, h.Spec.Claim.Role = "m4", "m4", infrav1.RoleWorker
		})
		f.reconcile()
		f.expectEndpoint(2)
		f.Expect(f.hooked()).To(Equal([]string{"m2"}))
	})
	t.Run("no hook for a reserved host", func(t *testing.T) {
		f, _, _ := withReservedHost(t)
		m, _ := f.Machine("c", "cp-1", kubeadmMachine)
		f.reconcileUntilStable()
		f.Refresh(m)
		f.Expect(m.Annotations).To(BeEmpty())
	})
}

// The test fails each write of a planned move in turn. The end is always the same.
func TestCrashAtEveryWriteOfAMove(t *testing.T) {
	run := func(t *testing.T, n int, moment controllertest.Moment) int {
		t.Helper()
		f := newFleet(t)
		f.Client.FailWrite(n, moment)
		f.Delete(f.machines["h1"])
		f.converge()
		f.Expect(f.hooked()).To(Equal([]string{"m1", "m2"}))
		f.reconnectCoreManagers()
		f.converge()
		f.expectEndpoint(2)
		f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(HaveLen(1))
		f.Expect(f.infra.Status.Endpoint.Moves).To(BeEquivalentTo(1))
		f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveMachineDeleted))
		f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
		f.Expect(f.hooked()).To(Equal([]string{"m2"}))
		f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, yes, infrav1.EndpointFollowedReason)
		return len(f.Client.Writes())
	}
	const never = 1 << 30
	writes := run(t, never, controllertest.BeforeWrite)
	NewWithT(t).Expect(writes).To(BeNumerically(">=", 7))
	for n, moment := range controllertest.Crashes(writes) {
		t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
			t.Parallel()
			run(t, n, moment)
		})
	}
}
