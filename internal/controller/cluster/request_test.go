package cluster_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// ask requests a move to a host, or to any.
func (f *fleet) ask(host string) {
	f.T.Helper()
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Annotations = map[string]string{infrav1.MoveEndpointAnnotation: host}
	})
}

func (f *fleet) asked() bool {
	f.T.Helper()
	f.Refresh(f.infra)
	_, asked := f.infra.Annotations[infrav1.MoveEndpointAnnotation]
	return asked
}

func TestRequestedMove(t *testing.T) {
	for host, want := range map[string]int{"": 2, "h3": 3} {
		t.Run("to "+host, func(t *testing.T) {
			f := newFleet(t)
			f.ask(host)
			f.settle()
			f.expectEndpoint(want)
			f.Expect(f.asked()).To(BeFalse())
			f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveRequested))
			f.converge()
			f.Expect(f.of("h1").Status.Endpoint.Rejects).To(Equal("10.0.0.1:6443"), "clients let go of a host that lives on")
			f.reconnect()
			f.agents()
			f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
			f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0].RejectedSince.Time.IsZero()).To(BeTrue())
			f.Expect(f.of("h1").Status.Endpoint.Rejects).To(BeEmpty(), "its API server serves the cluster's own clients again")
			f.settle()
			f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveRequested))
		})
	}
}

func TestRequestOverridesManual(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Host.Failover.Policy = infrav1.FailoverManual
	})
	f.die("h1")
	f.settle()
	f.ask("")
	f.settle()
	f.expectEndpoint(2)
}

func TestRequestsThatCannotBeMet(t *testing.T) {
	for name, tc := range map[string]struct {
		host, says string
		when       func(*fleet)
	}{
		"the host that has it": {host: "h1", says: "host h1 already"},
		"a worker":             {host: "h4", says: "host h4 is no control-plane host"},
		"an unknown host":      {host: "h9", says: "host h9 is no control-plane host"},
		"a host that can't":    {host: "h3", says: "host h3 can't have it: its agent is not connected", when: func(f *fleet) { f.die("h3") }},
		"none":                 {says: "h2: its agent is not connected; h3: its agent is not connected", when: func(f *fleet) { f.die("h2", "h3") }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			if tc.when != nil {
				tc.when(f)
			}
			f.ask(tc.host)
			f.settle()
			f.expectEndpoint(1)
			f.Expect(f.asked()).To(BeFalse())
			f.Expect(f.Events()).To(ContainElement(And(HavePrefix("Warning "+infrav1.NoMoveCandidateReason), ContainSubstring(tc.says))))
			f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
		})
	}
}

func TestRequestWaitsForTheMoveUnderWay(t *testing.T) {
	f := newFleet(t)
	f.moved()
	f.ask("h3")
	f.settle()
	f.expectEndpoint(2)
	f.Expect(f.asked()).To(BeTrue())
	f.converge()
	f.reconnect()
	f.converge()
	f.expectEndpoint(3)
	f.Expect(f.asked()).To(BeFalse())
}

// renumber gives a host another address.
func (f *fleet) renumber(host, to string) {
	f.T.Helper()
	f.Report(f.of(host), func(s *infrav1.ElementalHostStatus) {
		s.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: to}}
	})
}

func TestAddressThatChangesIsFollowed(t *testing.T) {
	f := newFleet(t)
	f.Report(f.of("h1"), func(s *infrav1.ElementalHostStatus) {
		s.Endpoint.APIServer.CertificateNames = []string{"10.0.0.1", "10.0.0.77"}
	})
	f.renumber("h1", "10.0.0.77")
	f.settle()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.77"))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal("h1"))
	f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveAddressChanged))
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.77:6443"))
	f.agents()
	f.settle()
	f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.1", Port: 6443, HostName: "h1"}}))
	f.Expect(f.holds()).To(Equal([]string{"m1"}))
}

func TestAddressThatTheCertificateDoesNotCover(t *testing.T) {
	f := newFleet(t)
	f.renumber("h1", "10.0.0.77")
	f.settle()
	f.expectEndpoint(1)
	c := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, no, infrav1.AddressNotCoveredReason)
	f.Expect(c.Message).To(And(ContainSubstring("10.0.0.77"), ContainSubstring("certSANs")))
	// It is well, but nobody can reach it there: that is no veto.
	for _, name := range []string{"h2", "h3"} {
		f.Report(f.of(name), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe.Result = infrav1.ProbeUnreachable })
	}
	f.Clock.Step(failoverAfter)
	f.settle()
	f.expectEndpoint(2)
}

// A second address changes nothing, also if the rule would mean that one now.
func TestAddressThatIsStillThereStays(t *testing.T) {
	f := newFleet(t)
	f.Report(f.of("h1"), func(s *infrav1.ElementalHostStatus) {
		s.Addresses = []clusterv1.MachineAddress{
			{Type: clusterv1.MachineInternalIP, Address: "10.0.0.77"}, {Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"},
		}
		s.Endpoint.APIServer.CertificateNames = []string{"10.0.0.1", "10.0.0.77"}
	})
	f.settle()
	f.expectEndpoint(1)
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
}

func TestAddressRulesOfReservations(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Address: infrav1.HostAddressRule{Family: infrav1.IPv6}}
	})
	f.controlPlane(nil)
	f.host("h1", "10.0.0.1")
	f.settle()
	c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoHostReason)
	f.Expect(c.Message).To(ContainSubstring("1 without a known InternalIP of family IPv6 (controlPlaneEndpointPolicy.host.address)"))
	dual := f.host("h2", "10.0.0.2", func(h *infrav1.ElementalHost) {
		h.Status.Addresses = append(h.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "2001:db8::2"})
	})
	f.Report(dual, func(s *infrav1.ElementalHostStatus) {
		s.Addresses = append(s.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "2001:db8::2"})
	})
	f.settle()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "2001:db8::2", Port: 6443}))
	f.Expect(f.claimOf(dual)).To(Equal("Reserved c"))
}

// A choice that was exchanged before anything used it is no move, but a kubeconfig
// may have been made with it.
func TestExchangedEndpointIsFollowed(t *testing.T) {
	f, h1, h2 := filled(t)
	f.Clock.SetTime(time.Now())
	f.SetConnection(h1, infrav1.ConnectionDisconnected)
	f.settle()
	f.Expect(f.claimOf(h2)).To(Equal("Reserved c"))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.1", Port: 6443}}))
	fl := &fleet{fixture: f}
	fl.kubeconfig("c-kubeconfig", "c", "https://10.0.0.1:6443")
	f.Machine("c", "cp-1", kubeadmMachine)
	controllertest.Change(f.Fixture, h2, func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "cp-1", Phase: infrav1.ClaimBound, Role: infrav1.RoleInitialControlPlane}
	})
	f.settle()
	f.Expect(fl.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
	f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())
	f.Client.Forget()
	f.settle()
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

func TestWhatWakesAClusterInUse(t *testing.T) {
	f := newFleet(t)
	for name, tc := range map[string]struct {
		host   string
		change func(*infrav1.ElementalHost)
		want   bool
	}{
		"a probe": {"h2", func(h *infrav1.ElementalHost) { h.Status.Endpoint.Probe.Result = infrav1.ProbeUnreachable }, true},
		"a connection": {"h2", func(h *infrav1.ElementalHost) {
			h.Status.Connection.State = infrav1.ConnectionDisconnected
		}, true},
		"an address":  {"h1", func(h *infrav1.ElementalHost) { h.Status.Addresses = nil }, true},
		"a release":   {"h1", func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }, true},
		"its freeing": {"h1", func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, true},
		"a bootstrap": {"h4", func(h *infrav1.ElementalHost) { h.Status.Operations[0].State = infrav1.OperationRunning }, true},
		"a step":      {"h4", func(h *infrav1.ElementalHost) { h.Status.Operations[0].Step = "runcmd" }, false},
		"an agent":    {"h1", func(h *infrav1.ElementalHost) { h.Status.Agent = &infrav1.HostAgent{BootID: "2"} }, false},
		"a host of another cluster": {"h2", func(h *infrav1.ElementalHost) {
			h.Spec.Claim.ClusterName, h.Status.Endpoint.Probe = "d", nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.of(tc.host).DeepCopy()
			after := before.DeepCopy()
			after.ResourceVersion = "later"
			tc.change(after)
			change := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
			woken := append(cluster.Woken(f.reconciler, change), cluster.WokenSoon(f.reconciler, change)...)
			if tc.want {
				NewWithT(t).Expect(woken).To(ConsistOf(f.request()))
			} else {
				NewWithT(t).Expect(woken).To(BeEmpty())
			}
		})
	}
	t.Run("a worker does soon", func(t *testing.T) {
		g := NewWithT(t)
		before := f.of("h2").DeepCopy()
		before.Spec.Claim.Role = infrav1.RoleWorker
		after := before.DeepCopy()
		after.ResourceVersion = "later"
		after.Spec.Claim.Phase = infrav1.ClaimReleasing
		change := event.UpdateEvent{ObjectOld: before, ObjectNew: after}
		g.Expect(cluster.Woken(f.reconciler, change)).To(BeEmpty())
		g.Expect(cluster.WokenSoon(f.reconciler, change)).To(ConsistOf(f.request()))
	})
	t.Run("a free host does not", func(t *testing.T) {
		before := f.host("h9", "10.0.0.9")
		after := before.DeepCopy()
		after.ResourceVersion = "later"
		after.Labels = map[string]string{"a": "b"}
		NewWithT(t).Expect(cluster.Woken(f.reconciler, event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeEmpty())
	})
	for name, tc := range map[string]struct {
		change func(*clusterv1.Machine)
		want   bool
	}{
		"a deletion": {func(m *clusterv1.Machine) { m.DeletionTimestamp = &m.CreationTimestamp }, true},
		"a hook":     {func(m *clusterv1.Machine) { m.Annotations = nil }, true},
		"a phase":    {func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, false},
	} {
		t.Run("Machine: "+name, func(t *testing.T) {
			f.Refresh(f.machines["h1"])
			after := f.machines["h1"].DeepCopy()
			tc.change(after)
			woken := cluster.WokenByMachine(f.reconciler, event.UpdateEvent{ObjectOld: f.machines["h1"], ObjectNew: after})
			if tc.want {
				NewWithT(t).Expect(woken).To(ConsistOf(f.request()))
			} else {
				NewWithT(t).Expect(woken).To(BeEmpty())
			}
		})
	}
}
