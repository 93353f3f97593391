package plan_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestRedirect(t *testing.T) {
	servers := []string{"10.0.0.3:6443", "10.0.0.2:6443"}
	atHost := func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1"}
		c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeHost
		c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{}
	}
	for name, tc := range map[string]struct {
		change   func(h *infrav1.ElementalHost, c *plan.Cluster)
		endpoint string
	}{
		"the endpoint host": {func(*infrav1.ElementalHost, *plan.Cluster) {}, "10.0.0.1:6443"},
		"IPv6": {func(_ *infrav1.ElementalHost, c *plan.Cluster) {
			c.Infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "fd00::1", Port: 443}
		}, "[fd00::1]:443"},
		"a name": {func(_ *infrav1.ElementalHost, c *plan.Cluster) {
			c.Infra.Spec.ControlPlaneEndpoint.Host = "host.example.com"
		}, ""},
		"no other host": {func(_ *infrav1.ElementalHost, c *plan.Cluster) { c.Backends = nil }, ""},
		"another host": {func(_ *infrav1.ElementalHost, c *plan.Cluster) {
			c.Infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name = "x"
		}, ""},
		"a worker": {func(h *infrav1.ElementalHost, _ *plan.Cluster) { h.Spec.NodeUpgrade.Role = infrav1.UpgradeWorker }, ""},
		"a host that boots another image": {func(h *infrav1.ElementalHost, _ *plan.Cluster) {
			h.Spec.NodeUpgrade.OSImage, h.Status.Agent.Capabilities = "oci:os:2", []string{"NodeImage"}
		}, ""},
		"a tunnel": {func(_ *infrav1.ElementalHost, c *plan.Cluster) {
			c.Infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeTunnel
		}, ""},
		"unknown cluster": {func(_ *infrav1.ElementalHost, c *plan.Cluster) { c.Infra = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := able(infrav1.ClaimBound, toUpgradeNode, is("Bootstrap", infrav1.OperationSucceeded, "id-1"))
			cluster := plan.Cluster{Infra: &infrav1.ElementalCluster{}, Backends: servers}
			atHost(cluster.Infra)
			cluster.Infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name = host.Name
			tc.change(host, &cluster)
			op := plan.For(host, site, cluster).Operation
			g.Expect(op).NotTo(BeNil())
			if tc.endpoint == "" {
				g.Expect(op.NodeUpgrade.Redirect).To(BeNil())
				return
			}
			g.Expect(op.NodeUpgrade.Redirect).To(Equal(&protocol.Redirect{Endpoint: tc.endpoint, Servers: servers}))
			cluster.Backends = cluster.Backends[:1]
			g.Expect(plan.For(host, site, cluster).Revision).NotTo(Equal(plan.For(host, site, plan.Cluster{Infra: cluster.Infra, Backends: servers}).Revision))
		})
	}
}
