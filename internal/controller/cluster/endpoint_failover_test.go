package cluster_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

func TestEndpointAtRest(t *testing.T) {
	f := newFleet(t)
	f.Clock.Step(time.Hour)
	f.Expect(f.reconcile()).To(BeZero(), "no requeue without a change")
	f.Expect(f.Client.Writes()).To(BeEmpty())
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, yes, infrav1.EndpointFromHostReason)
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, yes, infrav1.EndpointFollowedReason)
	f.Expect(f.hooked()).To(Equal([]string{"m1"}))
	f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())
}

func TestDeadHostLosesTheEndpoint(t *testing.T) {
	f := newFleet(t)
	f.upToDate("h3")
	registry := prometheus.NewRegistry()
	metrics, err := cluster.NewMetrics(registry)
	f.Expect(err).NotTo(HaveOccurred())
	f.reconciler.Metrics = metrics

	f.stop("h1")
	began := f.Clock.Now()
	f.Expect(f.reconcile().RequeueAfter).To(Equal(failoverAfter), "until the failover is due")
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
	f.Expect(move.CompletedAt.IsZero()).To(BeTrue(), "hosts still use the former endpoint")
	c = f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(And(ContainSubstring("workload cluster"), ContainSubstring("host h2"), ContainSubstring("host h1, which is offline")))
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.Expect(f.hooked()).To(Equal([]string{"m1", "m3"}), "the former host's Machine keeps its hook until other hosts use the new endpoint")
	f.Expect(f.Events()).To(ContainElement(And(ContainSubstring(infrav1.EndpointMovingReason), ContainSubstring("10.0.0.3"))))
	f.Expect(testutil.ToFloat64(metrics.Moves(infrav1.MoveHostDead))).To(Equal(1.0))

	f.Clock.Step(2 * time.Second)
	f.runAgents()
	f.reconcile()
	f.Expect(f.lastMove().CompletedAt.Time).To(BeTemporally("==", f.Clock.Now()), "a move does not wait for offline hosts")
	f.Expect(f.Events()).To(ContainElement(ContainSubstring(infrav1.EndpointMovedReason)))
	count, err := testutil.GatherAndCount(registry, "elemental_endpoint_move_seconds")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(count).To(Equal(1))
	f.Expect(f.hooked()).To(Equal([]string{"m3"}))
	c = f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(HaveSuffix("endpoint: host h1, which is offline"))

	f.start("h1")
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, yes, infrav1.EndpointFollowedReason)
	f.expectEndpoint(3)
	f.Expect(f.infra.Status.Endpoint.Moves).To(BeEquivalentTo(1))
	f.Expect(f.reconcile().RequeueAfter).To(Equal(28*time.Second), "for data that bootstrap providers with an outdated cache may have written")
	f.Clock.Step(28 * time.Second)
	f.Client.Forget()
	f.Expect(f.reconcile()).To(BeZero())
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

// Without sufficient evidence the endpoint never moves.
func TestEndpointStaysWithoutEvidence(t *testing.T) {
	for name, tc := range map[string]struct {
		when    func(*fleet)
		status  metav1.ConditionStatus
		reason  string
		message string
		// asked: hosts are asked again and again, because one of them suspects the endpoint.
		asked bool
	}{
		"its agent is disconnected": {
			when:   func(f *fleet) { f.SetConnection(f.hostNamed("h1"), infrav1.ConnectionDisconnected) },
			status: yes, reason: infrav1.EndpointFromHostReason,
		},
		"all agents are disconnected": {
			when: func(f *fleet) {
				for _, h := range f.hosts {
					f.SetConnection(h, infrav1.ConnectionDisconnected)
				}
			},
			status: yes, reason: infrav1.EndpointUnobservedReason, message: "no control-plane host of the cluster is connected",
		},
		"all agents are disconnected after reporting it as unreachable": {
			when: func(f *fleet) {
				f.stop("h1")
				f.SetConnection(f.hostNamed("h2"), infrav1.ConnectionDisconnected)
				f.SetConnection(f.hostNamed("h3"), infrav1.ConnectionDisconnected)
			},
			status: yes, reason: infrav1.EndpointUnobservedReason,
		},
		"its host reports a healthy API server": {
			when: func(f *fleet) {
				f.stop("h1")
				f.SetConnection(f.hostNamed("h1"), infrav1.ConnectionConnected)
			},
			status: no, reason: infrav1.EndpointUnreachableReason, message: "look at the network between them", asked: true,
		},
		"one other host reaches it": {
			when: func(f *fleet) {
				f.stop("h1")
				f.Report(f.hostNamed("h3"), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe.Result = infrav1.ProbeReachable })
			},
			status: yes, reason: infrav1.EndpointFromHostReason, asked: true,
		},
		"only a worker does not reach it": {
			when: func(f *fleet) {
				f.Report(f.hostNamed("h4"), func(s *infrav1.ElementalHostStatus) {
					s.Endpoint.Probe = &infrav1.EndpointProbe{Endpoint: "10.0.0.1:6443", Result: infrav1.ProbeUnreachable, Since: metav1.NewTime(longAgo)}
				})
				f.SetConnection(f.hostNamed("h1"), infrav1.ConnectionDisconnected)
				for _, name := range []string{"h2", "h3"} {
					f.Report(f.hostNamed(name), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe = nil })
				}
			},
			status: yes, reason: infrav1.EndpointFromHostReason,
		},
		"another endpoint is unreachable": {
			when: func(f *fleet) {
				f.stop("h1")
				for _, name := range []string{"h2", "h3"} {
					f.Report(f.hostNamed(name), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe.Endpoint = "10.0.0.9:6443" })
				}
			},
			status: yes, reason: infrav1.EndpointFromHostReason,
		},
		"the policy is Manual": {
			when: func(f *fleet) {
				controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
					c.Spec.ControlPlaneEndpointPolicy.Host.Failover.Policy = infrav1.FailoverManual
				})
				f.stop("h1")
			},
			status: no, reason: infrav1.EndpointUnreachableReason, message: infrav1.MoveEndpointAnnotation, asked: true,
		},
		"no host is a candidate": {
			when: func(f *fleet) {
				f.stop("h1")
				f.Report(f.hostNamed("h2"), func(s *infrav1.ElementalHostStatus) { s.Endpoint.APIServer.CertificateNames = []string{"kubernetes"} })
				controllertest.Change(f.Fixture, f.hostNamed("h3"), func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} })
			},
			status: no, reason: infrav1.NoMoveCandidateReason, message: "h2: the serving certificate of its API server does not cover 10.0.0.2 (AddressNotCovered); h3: it is in maintenance", asked: true,
		},
		"nobody confirms that it is unreachable": {
			when: func(f *fleet) {
				f.stop("h1")
				f.contacts.answers["h2"], f.contacts.answers["h3"] = failover.Answer{}, failover.Answer{}
			},
			status: yes, reason: infrav1.EndpointFromHostReason, asked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			tc.when(f)
			f.reconcileUntilStable()
			f.Clock.Step(24 * time.Hour)
			f.reconcileUntilStable()
			f.expectEndpoint(1)
			c := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, tc.status, tc.reason)
			f.Expect(c.Message).To(ContainSubstring(tc.message))
			f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())
			f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
			f.Client.Forget()
			next := time.Duration(0)
			if tc.asked {
				next = failover.AskInterval
			}
			f.Expect(f.reconcile().RequeueAfter).To(Equal(next))
			asked := len(f.contacts.askedAt) > 0
			f.Expect(asked).To(Equal(tc.asked))
			f.Expect(f.Client.Writes()).To(BeEmpty(), "questions and answers write nothing")
		})
	}
}

// A power cut: the endpoint host still counts as connected, and its last report says that
// it is well. It is asked at once, does not answer, and has no veto.
func TestSilentHostLosesTheEndpointSoon(t *testing.T) {
	f := newFleet(t, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Host = nil // defaults
	})
	f.Expect(f.contacts.askedAt).To(BeEmpty(), "nobody is asked at rest")
	f.contacts.answers["h1"] = failover.Answer{}
	f.stop("h1")
	f.SetConnection(f.hostNamed("h1"), infrav1.ConnectionConnected)
	began := f.Clock.Now()
	f.Expect(f.reconcile().RequeueAfter).To(Equal(5*time.Second), "for the answer")
	f.Expect(f.contacts.askedAt).To(Equal(map[string]time.Time{"h1": began, "h2": began, "h3": began}))
	c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointUnreachableReason)
	f.Expect(c.Message).To(ContainSubstring("host h1 was asked whether its API server is well"))
	f.Clock.Step(5 * time.Second)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(25 * time.Second))
	c = f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointUnreachableReason)
	f.Expect(c.Message).To(ContainSubstring("host h1 does not answer the manager; it moves at"))
	f.Clock.Step(25 * time.Second)
	f.converge()
	f.expectEndpoint(2)
	f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveHostDead))
}

// An API server that restarts, on a host that answers: afterSeconds applies.
func TestRestartOfTheAPIServerMovesNothing(t *testing.T) {
	f := newFleet(t, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Host = nil // defaults
	})
	f.stop("h1")
	f.SetConnection(f.hostNamed("h1"), infrav1.ConnectionConnected)
	f.Report(f.hostNamed("h1"), func(s *infrav1.ElementalHostStatus) { s.Endpoint.APIServer.Result = infrav1.ProbeUnreachable })
	for range 12 {
		f.Expect(f.reconcile().RequeueAfter).To(BeNumerically("<=", failover.AskInterval))
		f.Clock.Step(5 * time.Second)
	}
	f.expectEndpoint(1)
	f.start("h1")
	f.reconcileUntilStable()
	f.Expect(f.reconcile()).To(BeZero())
	f.expectEndpoint(1)
	f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())
}

// After a move the endpoint stays for the cooldown.
func TestCooldownAfterAMove(t *testing.T) {
	f := newFleet(t)
	f.stop("h1")
	f.Clock.Step(failoverAfter)
	f.converge()
	f.expectEndpoint(2)
	f.start("h1")
	f.upToDate("h1")
	moved := f.lastMove().StartedAt.Time
	f.stop("h2")
	f.Clock.Step(2 * failoverAfter)
	result := f.reconcile()
	f.expectEndpoint(2)
	f.Expect(f.Clock.Now().Add(result.RequeueAfter)).To(BeTemporally("==", moved.Add(time.Minute)))
	f.Expect(f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointUnreachableReason).Message).To(ContainSubstring("it moved only at"))
	f.Clock.Step(result.RequeueAfter)
	f.converge()
	f.expectEndpoint(1)
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.2", Port: 6443, HostName: "h2"}}),
		"the current endpoint is not a former one")
}

// The new endpoint host dies before any host uses the new endpoint.
func TestMoveIsSuperseded(t *testing.T) {
	f := newFleet(t)
	f.stop("h1")
	f.Clock.Step(failoverAfter)
	f.reconcile()
	f.expectEndpoint(2)
	f.stop("h2")
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

// Hosts probe host:port with the default port where spec has none. The reconciler
// compares their evidence with the same string.
func TestEndpointWithoutAPortFailsOver(t *testing.T) {
	f := newFleet(t, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpoint.Port = 0 })
	f.stop("h1")
	f.Clock.Step(failoverAfter)
	f.reconcile()
	f.expectEndpoint(2)
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.1", Port: 6443, HostName: "h1"}}))
}

// A report that is older than the host's connection counts from the reconnect.
func TestOldEvidenceCountsFromReconnect(t *testing.T) {
	f := newFleet(t)
	f.stop("h1")
	f.SetConnection(f.hostNamed("h2"), infrav1.ConnectionDisconnected)
	f.SetConnection(f.hostNamed("h3"), infrav1.ConnectionDisconnected)
	f.Clock.Step(time.Hour)
	f.SetConnection(f.hostNamed("h2"), infrav1.ConnectionConnected)
	f.Expect(f.reconcile().RequeueAfter).To(Equal(failoverAfter))
	f.expectEndpoint(1)
}

// A restored cluster has no status, and its control plane may be dead. Cluster API must
// still see that the infrastructure is provisioned.
func TestRestoredClusterIsProvisioned(t *testing.T) {
	f := newFleet(t)
	f.stop("h1")
	f.reconcileUntilStable()
	controllertest.ChangeStatus(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Status = infrav1.ElementalClusterStatus{} })
	f.reconcileUntilStable()
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.EndpointUnreachableReason)
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.ControlPlaneEndpointFollowedCondition)).NotTo(BeNil())
}
