package cluster_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/tunnel"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	gatewayName = "elemental-gateway.elemental-system.svc.cluster.local"
	gatewayPort = 16443
)

func tunnelSettings() tunnel.Settings {
	return tunnel.Settings{Names: endpointname.Names{ClusterDomain: "cluster.local"}, Gateway: gatewayName, Port: gatewayPort}
}

// tunnelled asks for an endpoint of type Tunnel.
func tunnelled(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
}

// capable lets a host's agent open tunnels and serve endpoints.
func capable(h *infrav1.ElementalHost) {
	h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityTunnel), string(protocol.CapabilityLocalEndpoint)}}
}

// derivedName is the endpoint's name of the fixture's cluster.
func (f *fixture) derivedName() string { return "c-endpoint." + f.Namespace + ".svc.cluster.local" }

// service returns the Service of the endpoint's name.
func (f *fixture) service() *corev1.Service { return &corev1.Service{ObjectMeta: f.Meta("c-endpoint")} }

func (f *fixture) expectService() {
	f.T.Helper()
	service := f.service()
	f.Refresh(service)
	f.Expect(service.Spec.Type).To(Equal(corev1.ServiceTypeExternalName))
	f.Expect(service.Spec.ExternalName).To(Equal(gatewayName))
	f.Expect(metav1.IsControlledBy(service, f.infra)).To(BeTrue(), "it ends with the ElementalCluster")
	f.Expect(service.Labels).To(Equal(map[string]string{infrav1.EndpointServiceLabel: "", clusterv1.ClusterNameLabel: "c"}),
		"the cache has it, and clusterctl does not move it")
}

// A cluster without any host gets its endpoint: Cluster API needs it before the first one.
func TestTunnelEndpointIsPublishedOnce(t *testing.T) {
	f := newFixture(t, kubeadm, tunnelled)
	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: f.derivedName(), Port: gatewayPort}))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.expectCondition(yes, infrav1.EndpointFromTunnelReason, "")
	f.ExpectCondition(f.infra, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.ExpectCondition(f.infra, infrav1.TunnelReadyCondition, no, infrav1.WaitingForControlPlaneReason)
	f.expectService()
	f.Expect(f.Events()).To(ConsistOf(ContainSubstring("The control plane endpoint is %s:16443", f.derivedName())))
	f.Client.Forget()
	f.copyEndpoint()
	f.reconcileUntilStable()
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

// With a domain whose names all lead to the gateway there is nothing to write but the name.
func TestTunnelEndpointInADomain(t *testing.T) {
	f := newFixture(t, tunnelled)
	f.tunnels.Names.EndpointDomain = "clusters.example.com"
	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "c-endpoint." + f.Namespace + ".clusters.example.com", Port: gatewayPort}))
	f.expectCondition(yes, infrav1.EndpointFromTunnelReason, "")
	f.Expect(f.Exists(f.service())).To(BeFalse())
}

func TestThreat59_EndpointsOfUsers(t *testing.T) {
	given := func(host string, port int32) func(*fixture) {
		return func(f *fixture) {
			controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
				c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: host, Port: port}
				tunnelled(nil, c)
			})
		}
	}
	own := func(port int32) func(*fixture) { return func(f *fixture) { given(f.derivedName(), port)(f) } }
	ofCluster := func(host string, port int32) func(*fixture) {
		return func(f *fixture) {
			given("", 0)(f)
			controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) {
				c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: host, Port: port}
			})
		}
	}
	for name, tc := range map[string]struct {
		change  func(*fixture)
		reason  string
		message string
	}{
		"the derived name":              {own(0), infrav1.EndpointFromTunnelReason, ""},
		"the derived name and the port": {own(gatewayPort), infrav1.EndpointFromTunnelReason, ""},
		"the derived name, other case":  {func(f *fixture) { given("C-Endpoint."+f.Namespace+".svc.cluster.local", 0)(f) }, infrav1.EndpointFromTunnelReason, ""},
		"another cluster's name":        {given("d-endpoint.default.svc.cluster.local", 0), infrav1.EndpointNameForeignReason, "has to be c-endpoint.test-"},
		"an address":                    {given("10.0.0.1", 0), infrav1.EndpointNameForeignReason, "is 10.0.0.1, but"},
		"an API server's port":          {own(6443), infrav1.EndpointPortReason, "is 6443, but with type Tunnel it has to be the port of the gateway, 16443"},
		"another name on the Cluster":   {ofCluster("10.0.0.1", 6443), infrav1.EndpointNameForeignReason, "of the Cluster is 10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.change(f)
			before := f.endpointOfUser()
			f.reconcileUntilStable()
			if tc.message == "" {
				f.expectCondition(yes, tc.reason, "")
				f.Expect(f.endpoint().Port).To(BeEquivalentTo(gatewayPort))
				f.expectService()
				return
			}
			f.expectCondition(no, tc.reason, tc.message)
			f.Expect(f.endpoint()).To(Equal(before), "it is never filled")
			f.Expect(f.infra.Status.Initialization.Provisioned).To(BeNil())
			f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.TunnelReadyCondition)).To(BeNil())
			f.Expect(f.Exists(f.service())).To(BeFalse())
		})
	}
}

func (f *fixture) endpointOfUser() infrav1.ControlPlaneEndpoint {
	f.T.Helper()
	f.Refresh(f.infra)
	return f.endpoint()
}

// A Service of somebody else, even of another ElementalCluster, is never touched.
func TestThreat59_NameTaken(t *testing.T) {
	for name, owners := range map[string][]metav1.OwnerReference{
		"by a user": nil,
		"by a former object of the same name": {{
			APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalCluster", Name: "c", UID: "former", Controller: new(true),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tunnelled)
			service := f.service()
			service.OwnerReferences = owners
			service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "elsewhere.example.com"}
			f.Create(service)
			before := service.ResourceVersion
			f.reconcileUntilStable()
			f.expectCondition(no, infrav1.EndpointNameTakenReason, "Service c-endpoint")
			f.Expect(f.endpoint().Host).To(BeEmpty())
			f.Refresh(service)
			f.Expect(service.ResourceVersion).To(Equal(before))
			f.Expect(f.reconcile().RequeueAfter).To(Equal(time.Minute), "foreign Services are not watched")
			f.Delete(service)
			f.reconcileUntilStable()
			f.expectCondition(yes, infrav1.EndpointFromTunnelReason, "")
			f.expectService()
		})
	}
}

func TestTunnelServiceIsRestored(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"after its deletion": func(f *fixture) { f.Delete(f.service()) },
		"after a change of where it leads": func(f *fixture) {
			controllertest.Change(f.Fixture, f.service(), func(s *corev1.Service) { s.Spec.ExternalName = "elsewhere.example.com" })
		},
		"after a change of its type": func(f *fixture) {
			controllertest.Change(f.Fixture, f.service(), func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 1}}}
			})
		},
		"after the loss of its label": func(f *fixture) {
			controllertest.Change(f.Fixture, f.service(), func(s *corev1.Service) { delete(s.Labels, infrav1.EndpointServiceLabel) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tunnelled)
			f.reconcileUntilStable()
			change(f)
			f.reconcileUntilStable()
			f.expectService()
			f.Client.Forget()
			f.reconcileUntilStable()
			f.Expect(f.Client.Writes()).To(BeEmpty())
		})
	}
}

func TestTunnelEndpointSurvivesCrashes(t *testing.T) {
	for n, moment := range controllertest.Crashes(4) {
		t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
			f := newFixture(t, tunnelled)
			f.Client.FailWrite(n, moment)
			f.reconcileUntilStable()
			f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: f.derivedName(), Port: gatewayPort}))
			f.expectCondition(yes, infrav1.EndpointFromTunnelReason, "")
			f.expectService()
		})
	}
}

// After clusterctl move the objects are others, and the Service is not among them.
func TestTunnelEndpointAfterMove(t *testing.T) {
	f := newFixture(t, tunnelled, func(c *clusterv1.Cluster, ec *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "c-endpoint." + c.Namespace + ".svc.cluster.local", Port: gatewayPort}
		ec.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: c.Spec.ControlPlaneEndpoint.Host, Port: gatewayPort}
	})
	f.reconcileUntilStable()
	f.expectService()
	f.expectCondition(yes, infrav1.EndpointFromTunnelReason, "")
	f.Expect(f.service().Labels).NotTo(HaveKey(clusterctlv1.ClusterctlMoveLabel))
}

// TunnelReady follows the hosts' status, and tells each change in an Event.
func TestTunnelReady(t *testing.T) {
	f := newFixture(t, kubeadm, tunnelled)
	f.reconcileUntilStable()
	f.Events()
	host := f.host("h1", "10.0.0.1", capable, bound(infrav1.RoleInitialControlPlane))
	f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	expect := func(status metav1.ConditionStatus, reason, message, kind string) {
		t.Helper()
		f.reconcileUntilStable()
		f.Expect(f.ExpectCondition(f.infra, infrav1.TunnelReadyCondition, status, reason).Message).To(ContainSubstring(message))
		f.expectCondition(yes, infrav1.EndpointFromTunnelReason, "")
		f.Expect(f.Events()).To(ConsistOf(And(HavePrefix(kind+" "+reason), ContainSubstring(message))))
	}
	expect(no, infrav1.NoTunnelReason, "h1 (no tunnel)", "Warning")
	connect := func(state infrav1.ConnectionState, message string) {
		f.Report(host, func(s *infrav1.ElementalHostStatus) {
			s.Tunnel = &infrav1.HostTunnel{State: state, Since: metav1.NewTime(f.Clock.Now()), Message: message}
		})
	}
	connect(infrav1.ConnectionConnected, "")
	expect(no, infrav1.APIServerRefusesReason, "h1 (its API server is not ready)", "Warning")
	f.Report(host, func(s *infrav1.ElementalHostStatus) {
		s.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable, Since: metav1.NewTime(f.Clock.Now())}}
	})
	expect(yes, infrav1.TunnelReadyReason, "through h1", "Normal")
	connect(infrav1.ConnectionDisconnected, "agent does not answer")
	expect(no, infrav1.NoTunnelReason, "h1 (no tunnel: agent does not answer)", "Warning")
}

func TestChangesThatEnqueueAClusterWithTunnels(t *testing.T) {
	f := newFixture(t, tunnelled)
	host := f.host("h1", "10.0.0.1", capable, bound(infrav1.RoleControlPlane))
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"a tunnel": func(h *infrav1.ElementalHost) {
			h.Status.Tunnel = &infrav1.HostTunnel{State: infrav1.ConnectionConnected}
		},
		"the API server's result": func(h *infrav1.ElementalHost) {
			h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable}}
		},
		"an agent that is too old": func(h *infrav1.ElementalHost) { h.Status.Agent = nil },
	} {
		t.Run(name, func(t *testing.T) {
			after := host.DeepCopy()
			after.ResourceVersion = "later"
			change(after)
			q := enqueued(f.reconciler.EndpointHosts(), event.UpdateEvent{ObjectOld: host, ObjectNew: after})
			NewWithT(t).Expect(q.now).To(ConsistOf(f.request()))
		})
	}
}

// Any host may be the first of the control plane, so all failure domains are offered from
// the start; but not those whose agents can't serve the endpoint.
func TestFailureDomainsWithTunnels(t *testing.T) {
	f := newFixture(t, kubeadm, tunnelled)
	f.controlPlane(nil)
	in := func(domain string) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: domain}
		}
	}
	f.host("h1", "10.0.0.1", capable, in("a"))
	f.host("h2", "10.0.0.2", capable, in("b"))
	old := f.host("h3", "10.0.0.3", in("c"))
	f.reconcileUntilStable()
	domain := func(name string, controlPlane bool) clusterv1.FailureDomain {
		return clusterv1.FailureDomain{Name: name, ControlPlane: new(controlPlane)}
	}
	f.Expect(f.infra.Status.FailureDomains).To(ConsistOf(domain("a", true), domain("b", true), domain("c", false)))
	before := old.DeepCopy()
	f.Report(old, func(s *infrav1.ElementalHostStatus) {
		h := &infrav1.ElementalHost{}
		capable(h)
		s.Agent = h.Status.Agent
	})
	q := enqueued(f.reconciler.FailureDomainHosts(), event.UpdateEvent{ObjectOld: before, ObjectNew: old})
	f.Expect(q.soon).To(ConsistOf(f.request()), "the agent was updated")
	f.reconcileUntilStable()
	f.Expect(f.infra.Status.FailureDomains).To(ConsistOf(domain("a", true), domain("b", true), domain("c", true)))
}

// An ElementalCluster that a Cluster does not name gets neither a name nor a Service.
func TestThreat49_ImpostorWithTunnel(t *testing.T) {
	f := newFixture(t, tunnelled)
	impostor := f.impostor(func(c *infrav1.ElementalCluster) { tunnelled(nil, c) })
	f.reconcileAnother(impostor)
	f.Expect(impostor.Spec.ControlPlaneEndpoint.Host).To(BeEmpty())
	f.Expect(f.Exists(f.service())).To(BeFalse())
}

// A cluster of another type has tunnels for its users, and says so while it has them.
func TestTunnelReadyOfAClusterForUsers(t *testing.T) {
	f := newFixture(t, kubeadm, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint.Host = "10.0.0.9"
		c.Spec.Access = &infrav1.Access{}
	})
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromUserReason, "")
	f.ExpectCondition(f.infra, infrav1.TunnelReadyCondition, no, infrav1.WaitingForControlPlaneReason)
	f.Expect(f.Exists(f.service())).To(BeFalse(), "users connect to the gateway by its own name")
	host := f.host("h1", "10.0.0.1", capable, bound(infrav1.RoleControlPlane))
	f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	f.Report(host, func(s *infrav1.ElementalHostStatus) {
		s.Tunnel = &infrav1.HostTunnel{State: infrav1.ConnectionConnected, Since: metav1.NewTime(f.Clock.Now())}
	})
	f.reconcileUntilStable()
	f.Expect(f.ExpectCondition(f.infra, infrav1.TunnelReadyCondition, yes, infrav1.TunnelReadyReason).Message).To(Equal("Connections go through h1"))
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.Access = nil })
	f.reconcileUntilStable()
	f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.TunnelReadyCondition)).To(BeNil())
}
