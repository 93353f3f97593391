package cluster_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func TestEndpointAtRest(t *testing.T) {
	f := newFleet(t)
	f.Clock.Step(time.Hour)
	f.Expect(f.reconcile()).To(BeZero(), "nothing is looked at again without a change")
	f.Expect(f.Client.Writes()).To(BeEmpty())
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, yes, infrav1.EndpointFromHostReason)
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, yes, infrav1.EndpointFollowedReason)
	f.Expect(f.holds()).To(Equal([]string{"m1"}))
	f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())
}

func TestDeadHostLosesTheEndpoint(t *testing.T) {
	f := newFleet(t)
	f.upToDate("h3")
	registry := prometheus.NewRegistry()
	metrics, err := cluster.NewMetrics(registry)
	f.Expect(err).NotTo(HaveOccurred())
	f.reconciler.Metrics = metrics

	f.die("h1")
	began := f.Clock.Now()
	f.Expect(f.reconcile().RequeueAfter).To(Equal(failoverAfter), "the moment when it is due")
	c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointUnreachableReason)
	f.Expect(c.Message).To(And(ContainSubstring("10.0.0.1:6443 has not answered h2, h3 since"), ContainSubstring("it moves at")))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.Expect(f.infra.Status.Endpoint.UnreachableSince.Time).To(BeTemporally("==", began))
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.1"))

	f.Clock.Step(failoverAfter)
	f.reconcile()
	f.expectEndpoint(3)
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.1", Port: 6443, HostName: "h1"}}))
	move := f.lastMove()
	f.Expect(move.Cause).To(Equal(infrav1.MoveHostDead))
	f.Expect([]string{move.From, move.To}).To(Equal([]string{"10.0.0.1", "10.0.0.3"}))
	f.Expect(move.StartedAt.Time).To(BeTemporally("==", f.Clock.Now()))
	f.Expect(move.CompletedAt.IsZero()).To(BeTrue(), "hosts have not followed yet")
	c = f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(And(ContainSubstring("workload cluster"), ContainSubstring("host h2"), ContainSubstring("host h1, which is offline")))
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.Expect(f.holds()).To(Equal([]string{"m1", "m3"}), "the former host's Machine is not to go before others have followed")
	f.Expect(f.Events()).To(ContainElement(And(ContainSubstring(infrav1.EndpointMovingReason), ContainSubstring("10.0.0.3"))))
	f.Expect(testutil.ToFloat64(metrics.Moves(infrav1.MoveHostDead))).To(Equal(1.0))

	f.Clock.Step(2 * time.Second)
	f.agents()
	f.reconcile()
	f.Expect(f.lastMove().CompletedAt.Time).To(BeTemporally("==", f.Clock.Now()), "who is offline is not waited for")
	f.Expect(f.Events()).To(ContainElement(ContainSubstring(infrav1.EndpointMovedReason)))
	count, err := testutil.GatherAndCount(registry, "elemental_endpoint_move_seconds")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(count).To(Equal(1))
	f.Expect(f.holds()).To(Equal([]string{"m3"}))
	c = f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(HaveSuffix("endpoint: host h1, which is offline"))

	f.comeBack("h1")
	f.settle()
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, yes, infrav1.EndpointFollowedReason)
	f.expectEndpoint(3)
	f.Expect(f.infra.Status.Endpoint.Moves).To(BeEquivalentTo(1))
	f.Expect(f.reconcile().RequeueAfter).To(Equal(28*time.Second), "once more for data of bootstrap providers that were behind")
	f.Clock.Step(28 * time.Second)
	f.Client.Forget()
	f.Expect(f.reconcile()).To(BeZero())
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

// Whatever is no evidence moves nothing, for however long.
func TestEndpointStays(t *testing.T) {
	for name, tc := range map[string]struct {
		when   func(*fleet)
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"its agent is gone": {
			when:   func(f *fleet) { f.SetConnection(f.of("h1"), infrav1.ConnectionDisconnected) },
			status: yes, reason: infrav1.EndpointFromHostReason,
		},
		"all agents are gone": {
			when: func(f *fleet) {
				for _, h := range f.hosts {
					f.SetConnection(h, infrav1.ConnectionDisconnected)
				}
			},
			status: yes, reason: infrav1.EndpointUnobservedReason, says: "no control-plane host of the cluster is connected",
		},
		"all agents are gone, and had said that it is dead": {
			when: func(f *fleet) {
				f.die("h1")
				f.SetConnection(f.of("h2"), infrav1.ConnectionDisconnected)
				f.SetConnection(f.of("h3"), infrav1.ConnectionDisconnected)
			},
			status: yes, reason: infrav1.EndpointUnobservedReason,
		},
		"its host says that it is well": {
			when: func(f *fleet) {
				f.die("h1")
				f.SetConnection(f.of("h1"), infrav1.ConnectionConnected)
			},
			status: no, reason: infrav1.EndpointUnreachableReason, says: "look at the network between them",
		},
		"one other host reaches it": {
			when: func(f *fleet) {
				f.die("h1")
				f.Report(f.of("h3"), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe.Result = infrav1.ProbeReachable })
			},
			status: yes, reason: infrav1.EndpointFromHostReason,
		},
		"only a worker does not reach it": {
			when: func(f *fleet) {
				f.Report(f.of("h4"), func(s *infrav1.ElementalHostStatus) {
					s.Endpoint.Probe = &infrav1.EndpointProbe{Endpoint: "10.0.0.1:6443", Result: infrav1.ProbeUnreachable, Since: metav1.NewTime(longAgo)}
				})
				f.SetConnection(f.of("h1"), infrav1.ConnectionDisconnected)
				for _, name := range []string{"h2", "h3"} {
					f.Report(f.of(name), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe = nil })
				}
			},
			status: yes, reason: infrav1.EndpointFromHostReason,
		},
		"what is unreachable is another endpoint": {
			when: func(f *fleet) {
				f.die("h1")
				for _, name := range []string{"h2", "h3"} {
					f.Report(f.of(name), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe.Endpoint = "10.0.0.9:6443" })
				}
			},
			status: yes, reason: infrav1.EndpointFromHostReason,
		},
		"the policy is Manual": {
			when: func(f *fleet) {
				controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
					c.Spec.ControlPlaneEndpointPolicy.Host.Failover.Policy = infrav1.FailoverManual
				})
				f.die("h1")
			},
			status: no, reason: infrav1.EndpointUnreachableReason, says: infrav1.MoveEndpointAnnotation,
		},
		"no host can have it": {
			when: func(f *fleet) {
				f.die("h1")
				f.Report(f.of("h2"), func(s *infrav1.ElementalHostStatus) { s.Endpoint.APIServer.CertificateNames = []string{"kubernetes"} })
				controllertest.Change(f.Fixture, f.of("h3"), func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} })
			},
			status: no, reason: infrav1.NoMoveCandidateReason, says: "h2: the serving certificate of its API server does not cover 10.0.0.2 (AddressNotCovered); h3: it is in maintenance",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			tc.when(f)
			f.settle()
			f.Clock.Step(24 * time.Hour)
			f.settle()
			f.expectEndpoint(1)
			c := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, tc.status, tc.reason)
			f.Expect(c.Message).To(ContainSubstring(tc.says))
			f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())
			f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
			f.Client.Forget()
			f.Expect(f.reconcile()).To(BeZero())
			f.Expect(f.Client.Writes()).To(BeEmpty())
		})
	}
}

// After a move the endpoint stays for a while, unless its Machine goes.
func TestMovesAreDamped(t *testing.T) {
	f := newFleet(t)
	f.die("h1")
	f.Clock.Step(failoverAfter)
	f.converge()
	f.expectEndpoint(2)
	f.comeBack("h1")
	f.upToDate("h1")
	moved := f.lastMove().StartedAt.Time
	f.die("h2")
	f.Clock.Step(2 * failoverAfter)
	result := f.reconcile()
	f.expectEndpoint(2)
	f.Expect(f.Clock.Now().Add(result.RequeueAfter)).To(BeTemporally("==", moved.Add(time.Minute)))
	f.Expect(f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointUnreachableReason).Message).To(ContainSubstring("it moved only at"))
	f.Clock.Step(result.RequeueAfter)
	f.converge()
	f.expectEndpoint(1)
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.2", Port: 6443, HostName: "h2"}}),
		"an address that is the endpoint again is no former one")
}

// The host that took the endpoint dies before anybody followed.
func TestMoveIsSuperseded(t *testing.T) {
	f := newFleet(t)
	f.die("h1")
	f.Clock.Step(failoverAfter)
	f.reconcile()
	f.expectEndpoint(2)
	f.die("h2")
	f.Clock.Step(time.Minute)
	f.reconcile()
	f.expectEndpoint(3)
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{
		{Host: "10.0.0.2", Port: 6443, HostName: "h2"}, {Host: "10.0.0.1", Port: 6443, HostName: "h1"},
	}))
	f.converge()
	f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
	f.Expect(f.infra.Status.Endpoint.Moves).To(BeEquivalentTo(2))
}

// What a host said before it was away counts from its return.
func TestEvidenceIsFresh(t *testing.T) {
	f := newFleet(t)
	f.die("h1")
	f.SetConnection(f.of("h2"), infrav1.ConnectionDisconnected)
	f.SetConnection(f.of("h3"), infrav1.ConnectionDisconnected)
	f.Clock.Step(time.Hour)
	f.SetConnection(f.of("h2"), infrav1.ConnectionConnected)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(failoverAfter))
	f.expectEndpoint(1)
}

// A cluster that was restored comes without status, and its control plane may be
// dead: Cluster API must learn that there is infrastructure.
func TestRestoredClusterIsProvisioned(t *testing.T) {
	f := newFleet(t)
	f.die("h1")
	f.settle()
	controllertest.ChangeStatus(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Status = infrav1.ElementalClusterStatus{} })
	f.settle()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointUnreachableReason)
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.ControlPlaneEndpointFollowedCondition)).NotTo(BeNil())
}
