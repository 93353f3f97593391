package clusters_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/clusters"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/direct"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

// machine makes a host a bootstrapped one of cluster c, with that address.
func machine(role infrav1.ClaimRole, address string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: h.Name, ClusterName: "c", MachineName: "m-" + h.Name, Phase: infrav1.ClaimBound, Role: role}
		h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationBootstrap, ID: h.Name, State: infrav1.OperationSucceeded}}
		h.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: address}}
	}
}

func TestDirect(t *testing.T) {
	endpoint := func(kind infrav1.EndpointType, host string, port int32) func(*infrav1.ElementalCluster) {
		return func(c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpointPolicy.Type = kind
			c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: host, Port: port}
			c.Spec.Access = &infrav1.Access{Direct: &infrav1.DirectAccess{TTLSeconds: 600}}
		}
	}
	for name, tc := range map[string]struct {
		cluster func(*infrav1.ElementalCluster)
		ttl     time.Duration
		servers []direct.Server
	}{
		"a load balancer": {endpoint(infrav1.EndpointTypeExternal, "192.0.2.1", 443), 10 * time.Minute,
			[]direct.Server{{Host: "h1", Address: "10.0.0.1:6443"}, {Host: "h2", Address: "[fd00::2]:6443"}, {Host: "h3", Address: "10.0.0.33:7443"}}},
		"a virtual IP address": {func(c *infrav1.ElementalCluster) {
			endpoint(infrav1.EndpointTypeVIP, "10.0.0.100", 8443)(c)
			c.Spec.ControlPlaneEndpointPolicy.VIP = &infrav1.EndpointVIP{Address: "10.0.0.100"}
		}, 10 * time.Minute,
			[]direct.Server{{Host: "h1", Address: "10.0.0.1:8443"}, {Host: "h2", Address: "[fd00::2]:8443"}, {Host: "h3", Address: "10.0.0.33:7443"}}},
		"type Tunnel": {endpoint(infrav1.EndpointTypeTunnel, "c-endpoint", 16443), 10 * time.Minute,
			[]direct.Server{{Host: "h1", Address: "10.0.0.1:6443"}, {Host: "h2", Address: "[fd00::2]:6443"}, {Host: "h3", Address: "10.0.0.33:7443"}}},
		"without direct access": {func(c *infrav1.ElementalCluster) {
			endpoint(infrav1.EndpointTypeTunnel, "c-endpoint", 16443)(c)
			c.Spec.Access.Direct = nil
		}, 0, nil},
		"without access": {func(c *infrav1.ElementalCluster) {
			endpoint(infrav1.EndpointTypeTunnel, "c-endpoint", 16443)(c)
			c.Spec.Access = nil
		}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			f := controllertest.New(t, environment)
			r.namespace = f.Namespace
			r.cluster("c", tc.cluster)
			r.kubeconfig("c")
			f.Host("h3", machine(infrav1.RoleInitialControlPlane, "10.0.0.3"), func(h *infrav1.ElementalHost) {
				h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable, Since: metav1.Now(), Address: "10.0.0.33:7443"}}
			})
			f.Host("h2", machine(infrav1.RoleControlPlane, "fd00::2"))
			f.Host("h1", machine(infrav1.RoleControlPlane, "10.0.0.1"))
			f.Host("worker", machine(infrav1.RoleWorker, "10.0.0.4"))
			f.Host("fenced", machine(infrav1.RoleControlPlane, "10.0.0.5"), func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} })
			f.Host("young", machine(infrav1.RoleControlPlane, "10.0.0.6"), func(h *infrav1.ElementalHost) { h.Status.Operations = nil })
			f.Host("nowhere", machine(infrav1.RoleControlPlane, "127.0.0.1"))
			f.Host("other", machine(infrav1.RoleControlPlane, "10.0.0.7"), func(h *infrav1.ElementalHost) { h.Spec.Claim.ClusterName = "d" })
			connector := clusters.New(clusters.Options{
				Cache: f.Client, Live: f.Admin, Clock: r.clock,
				Dial: func(context.Context, types.NamespacedName) (net.Conn, error) {
					return nil, errors.New("nothing is dialed")
				},
			})
			is, err := connector.Direct(t.Context(), r.key("c"))
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(is.TTL).To(Equal(tc.ttl))
			r.Expect(is.Servers).To(Equal(tc.servers))
			r.Expect(is.CA).To(Equal(environment.Bundle()))
			_, err = connector.Direct(t.Context(), r.key("d"))
			r.Expect(err).To(MatchError(proxy.ErrNoCluster))
		})
	}
}
