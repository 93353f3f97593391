package cluster_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// requestMove requests a move to a host; blank for any host.
func (f *fleet) requestMove(host string) {
	f.T.Helper()
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Annotations = map[string]string{infrav1.MoveEndpointAnnotation: host}
	})
}

func (f *fleet) isMoveRequested() bool {
	f.T.Helper()
	f.Refresh(f.infra)
	_, asked := f.infra.Annotations[infrav1.MoveEndpointAnnotation]
	return asked
}

func TestRequestedMove(t *testing.T) {
	for host, want := range map[string]int{"": 2, "h3": 3} {
		t.Run("to "+host, func(t *testing.T) {
			f := newFleet(t)
			f.requestMove(host)
			f.reconcileUntilStable()
			f.expectEndpoint(want)
			f.Expect(f.isMoveRequested()).To(BeFalse())
			f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveRequested))
			f.converge()
			f.Expect(f.hostNamed("h1").Status.Endpoint.Rejects).To(Equal("10.0.0.1:6443"), "the former host rejects connections")
			f.reconnectCoreManagers()
			f.runAgents()
			f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
			f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0].RejectedSince.Time.IsZero()).To(BeTrue())
			f.Expect(f.hostNamed("h1").Status.Endpoint.Rejects).To(BeEmpty(), "the rejection has ended")
			f.reconcileUntilStable()
			f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveRequested))
		})
	}
}

func TestRequestOverridesManual(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Host.Failover.Policy = infrav1.FailoverManual
	})
	f.stop("h1")
	f.reconcileUntilStable()
	f.requestMove("")
	f.reconcileUntilStable()
	f.expectEndpoint(2)
}

func TestImpossibleRequestsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		host, message string
		when          func(*fleet)
	}{
		"the endpoint's host": {host: "h1", message: "host h1 already"},
		"a worker":            {host: "h4", message: "host h4 is no control-plane host"},
		"an unknown host":     {host: "h9", message: "host h9 is no control-plane host"},
		"no candidate":        {host: "h3", message: "host h3 can't have it: its agent is not connected", when: func(f *fleet) { f.stop("h3") }},
		"no candidate at all": {message: "h2: its agent is not connected; h3: its agent is not connected", when: func(f *fleet) { f.stop("h2", "h3") }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			if tc.when != nil {
				tc.when(f)
			}
			f.requestMove(tc.host)
			f.reconcileUntilStable()
			f.expectEndpoint(1)
			f.Expect(f.isMoveRequested()).To(BeFalse())
			f.Expect(f.Events()).To(ContainElement(And(HavePrefix("Warning "+infrav1.NoMoveCandidateReason), ContainSubstring(tc.message))))
			f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
		})
	}
}

func TestRequestWaitsForTheCurrentMove(t *testing.T) {
	f := newFleet(t)
	f.moveByDeletion()
	f.requestMove("h3")
	f.reconcileUntilStable()
	f.expectEndpoint(2)
	f.Expect(f.isMoveRequested()).To(BeTrue())
	f.converge()
	f.reconnectCoreManagers()
	f.converge()
	f.expectEndpoint(3)
	f.Expect(f.isMoveRequested()).To(BeFalse())
}

// changeAddress gives a host another address.
func (f *fleet) changeAddress(host, to string) {
	f.T.Helper()
	f.Report(f.hostNamed(host), func(s *infrav1.ElementalHostStatus) {
		s.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: to}}
	})
}

func TestEndpointFollowsAChangedAddress(t *testing.T) {
	f := newFleet(t)
	f.Report(f.hostNamed("h1"), func(s *infrav1.ElementalHostStatus) {
		s.Endpoint.APIServer.CertificateNames = []string{"10.0.0.1", "10.0.0.77"}
	})
	f.changeAddress("h1", "10.0.0.77")
	f.reconcileUntilStable()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.77"))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal("h1"))
	f.Expect(f.lastMove().Cause).To(Equal(infrav1.MoveAddressChanged))
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.77:6443"))
	f.runAgents()
	f.reconcileUntilStable()
	f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.1", Port: 6443, HostName: "h1"}}))
	f.Expect(f.hooked()).To(Equal([]string{"m1"}))
}

func TestChangedAddressWithoutCertificate(t *testing.T) {
	f := newFleet(t)
	f.changeAddress("h1", "10.0.0.77")
	f.reconcileUntilStable()
	f.expectEndpoint(1)
	c := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, no, infrav1.AddressNotCoveredReason)
	f.Expect(c.Message).To(And(ContainSubstring("10.0.0.77"), ContainSubstring("certSANs")))
	// Its healthy API server is no veto: no host can reach it at the endpoint's address.
	for _, name := range []string{"h2", "h3"} {
		f.Report(f.hostNamed(name), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Probe.Result = infrav1.ProbeUnreachable })
	}
	f.Clock.Step(failoverAfter)
	f.reconcileUntilStable()
	f.expectEndpoint(2)
}

// A further address changes nothing, even if the rule selects it now.
func TestEndpointKeepsAnExistingAddress(t *testing.T) {
	f := newFleet(t)
	f.Report(f.hostNamed("h1"), func(s *infrav1.ElementalHostStatus) {
		s.Addresses = []clusterv1.MachineAddress{
			{Type: clusterv1.MachineInternalIP, Address: "10.0.0.77"}, {Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"},
		}
		s.Endpoint.APIServer.CertificateNames = []string{"10.0.0.1", "10.0.0.77"}
	})
	f.reconcileUntilStable()
	f.expectEndpoint(1)
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
}

func TestAddressRulesOfReservations(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Address: infrav1.HostAddressRule{Family: infrav1.IPv6}}
	})
	f.controlPlane(nil)
	f.host("h1", "10.0.0.1")
	f.reconcileUntilStable()
	c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.NoHostReason)
	f.Expect(c.Message).To(ContainSubstring("1 without a known InternalIP of family IPv6 (controlPlaneEndpointPolicy.host.address)"))
	dual := f.host("h2", "10.0.0.2", func(h *infrav1.ElementalHost) {
		h.Status.Addresses = append(h.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "2001:db8::2"})
	})
	f.Report(dual, func(s *infrav1.ElementalHostStatus) {
		s.Addresses = append(s.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "2001:db8::2"})
	})
	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "2001:db8::2", Port: 6443}))
	f.Expect(f.claimOf(dual)).To(Equal("Reserved c"))
}

// The exchange of an unused choice is no move, but a kubeconfig may name the former choice.
func TestKubeconfigOfAnExchangedEndpoint(t *testing.T) {
	f, h1, h2 := withReservedHost(t)
	f.Clock.SetTime(time.Now())
	f.SetConnection(h1, infrav1.ConnectionDisconnected)
	f.reconcileUntilStable()
	f.Expect(f.claimOf(h2)).To(Equal("Reserved c"))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints).To(Equal([]infrav1.FormerEndpoint{{Host: "10.0.0.1", Port: 6443}}))
	fl := &fleet{fixture: f}
	fl.kubeconfig("c-kubeconfig", "c", "https://10.0.0.1:6443")
	f.Machine("c", "cp-1", kubeadmMachine)
	controllertest.Change(f.Fixture, h2, func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "cp-1", Phase: infrav1.ClaimBound, Role: infrav1.RoleInitialControlPlane}
	})
	f.reconcileUntilStable()
	f.Expect(fl.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
	f.Expect(f.infra.Status.Endpoint.LastMove).To(BeNil())
	f.Client.Forget()
	f.reconcileUntilStable()
	f.Expect(f.Client.Writes()).To(BeEmpty())
}
