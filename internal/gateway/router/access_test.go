package router_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/router"
)

// external makes a cluster one whose endpoint is a load balancer.
func external(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
}

func accessible(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.Access = &infrav1.Access{} }

func TestClustersAreDialedForUsers(t *testing.T) {
	for name, tc := range map[string]struct {
		changes []func(*clusterv1.Cluster, *infrav1.ElementalCluster)
		routed  bool
	}{
		"of type Tunnel":               {nil, true},
		"of another type, with access": {[]func(*clusterv1.Cluster, *infrav1.ElementalCluster){external, accessible}, true},
		"of another type":              {[]func(*clusterv1.Cluster, *infrav1.ElementalCluster){external}, false},
		"another infrastructure": {[]func(*clusterv1.Cluster, *infrav1.ElementalCluster){accessible, func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
			c.Spec.InfrastructureRef.Name = "other"
		}}, false},
		"no infrastructure": {[]func(*clusterv1.Cluster, *infrav1.ElementalCluster){accessible, func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
			c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{}
		}}, false},
		"an owner that is gone": {[]func(*clusterv1.Cluster, *infrav1.ElementalCluster){accessible, func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) { c.UID = "new" }}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cluster("sites", "edge2", "", tc.changes...)
			r.host("h1", func(h *infrav1.ElementalHost) { h.Spec.Claim.ClusterName = "edge2" })
			conn, err := r.router.DialCluster(t.Context(), namespaced("edge2"))
			if !tc.routed {
				r.Expect(err).To(MatchError(router.ErrNoRoute))
				r.Expect(r.tunnels.takeDialed()).To(BeEmpty())
				return
			}
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(conn.Close()).To(Succeed())
		})
	}
	r := newRig(t)
	_, err := r.router.DialCluster(t.Context(), namespaced("unknown"))
	r.Expect(err).To(MatchError(router.ErrNoRoute))
}

// Nobody is authenticated at the passthrough, so no name leads to a cluster that only users
// have access to.
func TestNoNameLeadsToAClusterForUsers(t *testing.T) {
	r := newRig(t)
	const name = "edge2-endpoint.sites.svc.cluster.local"
	r.cluster("sites", "edge2", name, external, accessible)
	r.host("h1", func(h *infrav1.ElementalHost) { h.Spec.Claim.ClusterName = "edge2" })
	_, err := r.router.Dial(t.Context(), name)
	r.Expect(err).To(MatchError(router.ErrNoRoute))
}

// Connections of users end when nobody may have access any more, whatever became of those
// by name.
func TestConnectionsOfUsersEnd(t *testing.T) {
	r := newRig(t)
	r.cluster("sites", "edge2", "", external, accessible)
	r.host("h1", func(h *infrav1.ElementalHost) { h.Spec.Claim.ClusterName = "edge2" })
	conn, err := r.router.DialCluster(t.Context(), namespaced("edge2"))
	r.Expect(err).NotTo(HaveOccurred())
	infra := &infrav1.ElementalCluster{}
	infra.Namespace, infra.Name = "sites", "edge2"
	change(r, infra, func(c *infrav1.ElementalCluster) { c.Spec.Access.Direct = &infrav1.DirectAccess{} })
	r.Expect(r.isOpen(conn)).To(BeTrue())
	change(r, infra, func(c *infrav1.ElementalCluster) { c.Spec.Access = nil })
	r.Expect(r.isOpen(conn)).To(BeFalse())
}
