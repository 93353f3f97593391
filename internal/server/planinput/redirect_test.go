package planinput

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// reachable sets the host's addresses. Its API server is ready.
func reachable(addresses ...string) func(*infrav1.ElementalHost) {
	return func(host *infrav1.ElementalHost) {
		for _, address := range addresses {
			host.Status.Addresses = append(host.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
		}
		host.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable}}
	}
}

func unreachable(host *infrav1.ElementalHost) {
	host.Status.Endpoint.APIServer.Result = infrav1.ProbeUnreachable
}

// upgrading has the host upgraded in place.
func upgrading(host *infrav1.ElementalHost) {
	host.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "u", Role: infrav1.UpgradeControlPlane}
	host.Status.Operations = append(host.Status.Operations, infrav1.HostOperation{Type: infrav1.OperationNodeUpgrade, ID: "u", State: infrav1.OperationRunning})
}

func TestPeersOfAnUpgrade(t *testing.T) {
	const controlPlane, initial, worker = infrav1.RoleControlPlane, infrav1.RoleInitialControlPlane, infrav1.RoleWorker
	foreign := tunneling("f", controlPlane, reachable("10.0.0.99"))
	foreign.Spec.Claim.ClusterName = "d"
	peers := []client.Object{
		tunneling("b", controlPlane, reachable("10.0.0.2")), tunneling("c", controlPlane, reachable("10.0.0.3")),
		tunneling("w", worker, reachable("10.0.0.8")), foreign,
	}
	both := []string{"10.0.0.2:6443", "10.0.0.3:6443"}
	for name, tc := range map[string]struct {
		role   infrav1.ClaimRole
		change func(*infrav1.ElementalHost, *infrav1.ElementalCluster)
		peers  []client.Object
		want   []string
	}{
		"of the endpoint host":  {controlPlane, nil, peers, both},
		"of the initial host":   {initial, nil, peers, both},
		"of one that has begun": {controlPlane, func(h *infrav1.ElementalHost, _ *infrav1.ElementalCluster) { upgrading(h) }, peers, both},
		"no upgrade":            {controlPlane, func(h *infrav1.ElementalHost, _ *infrav1.ElementalCluster) { h.Spec.NodeUpgrade = nil }, peers, nil},
		"of a worker": {controlPlane, func(h *infrav1.ElementalHost, _ *infrav1.ElementalCluster) {
			h.Spec.NodeUpgrade.Role = infrav1.UpgradeWorker
		}, peers, nil},
		"another host has it": {controlPlane, func(_ *infrav1.ElementalHost, c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy.HostRef.Name = "b"
		}, peers, nil},
		"a virtual address": {controlPlane, func(_ *infrav1.ElementalHost, c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeVIP
		}, peers, nil},
		"an endpoint of its owner": {controlPlane, func(_ *infrav1.ElementalHost, c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
		}, peers, nil},
		"it has ended": {controlPlane, func(h *infrav1.ElementalHost, _ *infrav1.ElementalCluster) {
			upgrading(h)
			h.Status.Operations[len(h.Status.Operations)-1].State = infrav1.OperationSucceeded
		}, peers, nil},
		"disconnected last": {controlPlane, nil, []client.Object{
			tunneling("b", controlPlane, reachable("10.0.0.2"), disconnected), tunneling("c", controlPlane, reachable("10.0.0.3")),
		}, []string{"10.0.0.3:6443", "10.0.0.2:6443"}},
		"not ready last": {controlPlane, nil, []client.Object{
			tunneling("b", controlPlane, reachable("10.0.0.2"), unreachable), tunneling("c", controlPlane, reachable("10.0.0.3")),
		}, []string{"10.0.0.3:6443", "10.0.0.2:6443"}},
		"upgraded too last": {controlPlane, nil, []client.Object{
			tunneling("b", controlPlane, reachable("10.0.0.2"), upgrading), tunneling("c", controlPlane, reachable("10.0.0.3")),
		}, []string{"10.0.0.3:6443", "10.0.0.2:6443"}},
		"by the rule of the endpoint": {controlPlane, func(_ *infrav1.ElementalHost, c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "fd00::1", Port: 443}
			c.Spec.ControlPlaneEndpointPolicy.Host = &infrav1.EndpointHostPolicy{Address: infrav1.HostAddressRule{Family: infrav1.IPv6}}
		}, []client.Object{tunneling("b", controlPlane, reachable("10.0.0.2", "fd00::2")), tunneling("c", controlPlane, reachable("10.0.0.3"))}, []string{"[fd00::2]:443"}},
		"not bootstrapped": {controlPlane, nil, []client.Object{tunneling("b", controlPlane, reachable("10.0.0.2"), fresh)}, nil},
		"held":             {controlPlane, nil, []client.Object{tunneling("b", controlPlane, reachable("10.0.0.2"), held)}, nil},
		"not approved": {controlPlane, nil, []client.Object{tunneling("b", controlPlane, reachable("10.0.0.2"), func(h *infrav1.ElementalHost) {
			h.Spec.Approval = infrav1.ApprovalPending
		})}, nil},
		"leaving hosts are none": {controlPlane, nil, append([]client.Object{beingDeleted("b")}, peers...), []string{"10.0.0.3:6443"}},
		"fenced hosts are none":  {controlPlane, nil, []client.Object{tunneling("b", controlPlane, reachable("10.0.0.2"), fenced)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host, infra := tunneling("h", tc.role, reachable("10.0.0.1")), newCluster("c")
			host.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "u", Role: infrav1.UpgradeControlPlane}
			infra.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeHost
			infra.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "h"}
			if tc.change != nil {
				tc.change(host, infra)
			}
			cluster, err := newReader(t, append(tc.peers, newOwner("c"), infra, host)...).Cluster(t.Context(), host)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cluster.Backends).To(Equal(tc.want))
		})
	}
}
