package facts

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// What a host reports on the endpoint of another cluster than its own is not stored.
func TestThreat35_EndpointOfAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	host.Spec.Claim = &infrav1.HostClaim{ID: "c1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
	own := &infrav1.ElementalCluster{}
	own.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
	own.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "other"},
	}
	reported := func(endpoint string) *infrav1.HostEndpoint {
		return &infrav1.HostEndpoint{Kubeconfigs: "10.0.0.1:6443", Probe: &infrav1.EndpointProbe{
			Endpoint: endpoint, Result: infrav1.ProbeUnreachable, Since: metav1.NewTime(time.Unix(0, 0)),
		}}
	}
	g.Expect(AcceptedEndpoint(host, own, reported("10.0.0.1:6443")).Probe).NotTo(BeNil())
	for _, foreign := range []string{"10.0.0.2:6443", "10.0.0.1:6444"} {
		g.Expect(AcceptedEndpoint(host, own, reported(foreign)).Probe).To(BeNil(), foreign)
	}
}
