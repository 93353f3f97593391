package v1beta2_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Certificates, kubeconfigs and forwarders of a running cluster name the endpoint.
func TestTypeTunnelIsFinal(t *testing.T) {
	admin, namespace := env.Client(t), env.Namespace(t)
	endpoint := infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	typed := func(kind infrav1.EndpointType) func(*infrav1.ElementalCluster) {
		return func(c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpointPolicy.Type = kind }
	}
	for name, tc := range map[string]struct {
		endpoint infrav1.ControlPlaneEndpoint
		from, to func(*infrav1.ElementalCluster)
		refused  bool
	}{
		"to Tunnel, with an endpoint":            {endpoint, typed(infrav1.EndpointTypeExternal), typed(infrav1.EndpointTypeTunnel), true},
		"to Tunnel, with an endpoint of no type": {endpoint, typed(""), typed(infrav1.EndpointTypeTunnel), true},
		"from Tunnel, with an endpoint":          {endpoint, typed(infrav1.EndpointTypeTunnel), typed(infrav1.EndpointTypeExternal), true},
		"from Tunnel to no type":                 {endpoint, typed(infrav1.EndpointTypeTunnel), typed(""), true},
		"from Tunnel, and without the endpoint": {endpoint, typed(infrav1.EndpointTypeTunnel), func(c *infrav1.ElementalCluster) {
			typed(infrav1.EndpointTypeHost)(c)
			c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{}
		}, true},
		"from Tunnel, and without the spec": {endpoint, typed(infrav1.EndpointTypeTunnel), func(c *infrav1.ElementalCluster) {
			c.Spec = infrav1.ElementalClusterSpec{}
		}, true},
		"between other types, and without the spec": {endpoint: endpoint, from: typed(infrav1.EndpointTypeExternal), to: func(c *infrav1.ElementalCluster) {
			c.Spec = infrav1.ElementalClusterSpec{}
		}},
		"to Tunnel, without an endpoint":            {from: typed(infrav1.EndpointTypeHost), to: typed(infrav1.EndpointTypeTunnel)},
		"from Tunnel, without an endpoint":          {from: typed(infrav1.EndpointTypeTunnel), to: typed(infrav1.EndpointTypeHost)},
		"another field of a cluster of type Tunnel": {endpoint: endpoint, from: typed(infrav1.EndpointTypeTunnel), to: func(c *infrav1.ElementalCluster) { c.Spec.FailureDomains.HostLabel = "rack" }},
		"between other types, with an endpoint":     {endpoint: endpoint, from: typed(""), to: typed(infrav1.EndpointTypeExternal)},
		"to Tunnel, together with the first endpoint": {from: typed(""), to: func(c *infrav1.ElementalCluster) {
			typed(infrav1.EndpointTypeTunnel)(c)
			c.Spec.ControlPlaneEndpoint = endpoint
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"}}
			c.Spec.ControlPlaneEndpoint = tc.endpoint
			tc.from(c)
			g.Expect(admin.Create(t.Context(), c)).To(Succeed())
			tc.to(c)
			err := admin.Update(t.Context(), c)
			if tc.refused {
				g.Expect(err).To(MatchError(ContainSubstring("the type can't change to or from Tunnel once there is an endpoint")))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
		})
	}
}
