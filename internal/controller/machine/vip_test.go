package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A host whose agent can't serve the endpoint would never become a Node. That holds for
// workers too, whose tunnels are the fallback.
func TestHostsCanServeAnEndpointOfTypeTunnel(t *testing.T) {
	f := newFixture(t)
	agent := func(capabilities ...protocol.Capability) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Agent = &infrav1.HostAgent{}
			for _, c := range capabilities {
				h.Status.Agent.Capabilities = append(h.Status.Agent.Capabilities, string(c))
			}
		}
	}
	f.Host("h1")
	f.Host("h2", agent(protocol.CapabilityTunnel))
	f.Host("h3", agent(protocol.CapabilityLocalEndpoint))
	f.Host("h4", agent(protocol.CapabilityTunnel, protocol.CapabilityLocalEndpoint))
	f.Host("h5", agent(protocol.CapabilityTunnel, protocol.CapabilityLocalEndpoint))
	f.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "c-endpoint.default.svc.cluster.local", Port: 16443}
		c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
	})
	_, first := f.Machine("c", "first", controllertest.ControlPlane)
	f.reconcile(first)
	f.Expect(first.Spec.HostRef).To(HaveValue(HaveField("Name", "h4")))
	_, worker := f.Machine("c", "worker")
	f.reconcile(worker)
	f.Expect(worker.Spec.HostRef).To(HaveValue(HaveField("Name", "h5")))
	for name, changes := range map[string][]func(*clusterv1.Machine, *infrav1.ElementalMachine){"second": {controllertest.ControlPlane}, "another": nil} {
		_, m := f.Machine("c", name, changes...)
		f.reconcile(m)
		f.Expect(m.Spec.HostRef).To(BeNil())
		f.Expect(f.ExpectCondition(m, infrav1.HostClaimedCondition, no, infrav1.NoHostReason).Message).
			To(ContainSubstring("3 whose agents are too old for an endpoint of type Tunnel"))
	}
}

// A host that can't carry the virtual IP address could join the control plane, but the
// address would be unreachable while that host leads. Workers don't need the address.
func TestControlPlaneHostsCanCarryTheVIP(t *testing.T) {
	nic := func(name, address string) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) {
			h.Status.Inventory = &infrav1.HostInventory{NICs: []infrav1.HostNIC{{Name: name, Addresses: []string{address}}}}
		}
	}
	for name, tc := range map[string]struct {
		vip  infrav1.EndpointVIP
		want string
		why  string
	}{
		"by subnet":    {vip: infrav1.EndpointVIP{Address: "192.0.2.100"}, want: "h2", why: "2 without a subnet of the virtual IP address"},
		"by interface": {vip: infrav1.EndpointVIP{Address: "192.0.2.100", Interface: "eth1"}, want: "h2", why: "2 without the interface of the virtual IP address"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Host("h1", nic("eth0", "198.51.100.1/24"))
			f.Host("h2", nic("eth1", "192.0.2.2/24"))
			f.Host("h3", nic("eth0", "198.51.100.3/24"))
			f.Cluster("c", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
				c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "192.0.2.100", Port: 6443}
				c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeVIP, VIP: &tc.vip}
			})
			_, first := f.Machine("c", "first", controllertest.ControlPlane)
			f.reconcile(first)
			f.Expect(first.Spec.HostRef).NotTo(BeNil())
			f.Expect(first.Spec.HostRef.Name).To(Equal(tc.want))
			_, worker := f.Machine("c", "worker")
			f.reconcile(worker)
			f.Expect(worker.Spec.HostRef.Name).To(Equal("h1"))
			_, second := f.Machine("c", "second", controllertest.ControlPlane)
			f.reconcile(second)
			f.Expect(second.Spec.HostRef).To(BeNil())
			f.Expect(f.ExpectCondition(second, infrav1.HostClaimedCondition, no, infrav1.NoHostReason).Message).To(ContainSubstring(tc.why))
		})
	}
}
