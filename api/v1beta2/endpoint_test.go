package v1beta2_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

func TestEndpointType(t *testing.T) {
	chosen := &infrav1.EndpointHostReference{Name: "h1"}
	for name, tc := range map[string]struct {
		policy infrav1.ControlPlaneEndpointPolicy
		host   string
		want   infrav1.EndpointType
	}{
		"blank endpoint":                      {},
		"blank endpoint, type Host":           {policy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeHost}},
		"chosen host":                         {policy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeHost, HostRef: chosen}, host: "10.0.0.1", want: infrav1.EndpointTypeHost},
		"chosen host, type unset":             {policy: infrav1.ControlPlaneEndpointPolicy{HostRef: chosen}, host: "10.0.0.1", want: infrav1.EndpointTypeHost},
		"endpoint of the user":                {host: "10.0.0.9", want: infrav1.EndpointTypeExternal},
		"endpoint of the user, type Host":     {policy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeHost}, host: "10.0.0.9", want: infrav1.EndpointTypeExternal},
		"type External, endpoint still blank": {policy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeExternal}, want: infrav1.EndpointTypeExternal},
		"type VIP, address not yet known":     {policy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeVIP}, want: infrav1.EndpointTypeVIP},
		"type VIP":                            {policy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeVIP}, host: "10.0.0.9", want: infrav1.EndpointTypeVIP},
	} {
		t.Run(name, func(t *testing.T) {
			c := &infrav1.ElementalCluster{}
			c.Spec.ControlPlaneEndpointPolicy, c.Spec.ControlPlaneEndpoint.Host = tc.policy, tc.host
			NewWithT(t).Expect(c.EndpointType()).To(Equal(tc.want))
		})
	}
}

func TestHostPort(t *testing.T) {
	g := NewWithT(t)
	for want, e := range map[string]infrav1.ControlPlaneEndpoint{
		"":                      {Port: 6443},
		"10.0.0.1:7443":         {Host: "10.0.0.1", Port: 7443},
		"10.0.0.1:6443":         {Host: "10.0.0.1"},
		"[2001:db8::1]:6443":    {Host: "2001:db8::1", Port: 6443},
		"api.example.org:10443": {Host: "api.example.org", Port: 10443},
	} {
		g.Expect(e.HostPort()).To(Equal(want))
		g.Expect(infrav1.FormerEndpoint{Host: e.Host, Port: e.Port}.HostPort()).To(Equal(want))
	}
}
