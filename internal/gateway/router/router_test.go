package router_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/router"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

func TestNamesLeadToTheirClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clusterv1.Cluster, *infrav1.ElementalCluster)
		routed bool
	}{
		"as recorded": {func(*clusterv1.Cluster, *infrav1.ElementalCluster) {}, true},
		"recorded in another case": {func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpoint.Host = "Edge2-Endpoint.sites.svc.cluster.local"
		}, true},
		"of another type":           {func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpointPolicy.Type = "" }, false},
		"not recorded":              {func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpoint.Host = "" }, false},
		"another infrastructure":    {func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) { c.Spec.InfrastructureRef.Name = "other" }, false},
		"an owner that is gone":     {func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) { c.UID = "new" }, false},
		"no owner":                  {func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.OwnerReferences = nil }, false},
		"a label that names no one": {func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Labels = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cluster("sites", "edge2", "edge2-endpoint.sites.svc.cluster.local", tc.change)
			r.host("h1", func(h *infrav1.ElementalHost) { h.Spec.Claim.ClusterName = "edge2" })
			conn, err := r.router.Dial(t.Context(), "edge2-endpoint.sites.svc.cluster.local")
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
	_, err := r.router.Dial(t.Context(), "unknown-endpoint.sites.svc.cluster.local")
	r.Expect(err).To(MatchError(router.ErrNoRoute))
	r.host("h1")
	conn, err := r.router.Dial(t.Context(), "EDGE-endpoint.Sites.svc.cluster.local")
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(conn.Close()).To(Succeed())
}

// Whoever writes another cluster's name into an ElementalCluster gets none of its
// connections, and keeps nobody from them.
func TestThreat59_ForeignEndpointName(t *testing.T) {
	for name, claim := range map[string]func(*rig){
		"in another namespace":  func(r *rig) { r.cluster("attackers", "edge", edgeName) },
		"in the same namespace": func(r *rig) { r.cluster("sites", "attacker", edgeName) },
		"with the victim's label": func(r *rig) {
			r.cluster("attackers", "attacker", edgeName, func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Labels[clusterv1.ClusterNameLabel] = "edge" })
		},
		"without a Cluster, in the same namespace": func(r *rig) {
			r.create(&infrav1.ElementalCluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: "sites", Name: "attacker", Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}},
				Spec: infrav1.ElementalClusterSpec{
					ControlPlaneEndpoint:       infrav1.ControlPlaneEndpoint{Host: edgeName, Port: 16443},
					ControlPlaneEndpointPolicy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeTunnel},
				},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.host("victim")
			r.host("attacker", func(h *infrav1.ElementalHost) { h.Spec.Claim.ClusterName = "attacker" })
			claim(r)
			conn := r.dial()
			r.Expect(r.tunnels.takeDialed()).To(Equal("victim"))
			r.Expect(conn.Close()).To(Succeed())
		})
	}
}

func TestHostsAreDialedInOrder(t *testing.T) {
	failing := func(r *rig, err error, names ...string) {
		for _, name := range names {
			r.tunnels.hosts[name].err = err
		}
	}
	for name, tc := range map[string]struct {
		setUp  func(*rig)
		dialed string
		err    error
	}{
		"the first": {func(r *rig) { r.host("a"); r.host("b") }, "a", nil},
		"after a refusal the next, at once": {func(r *rig) {
			r.host("a")
			r.host("b")
			failing(r, tunnel.ErrRefused, "a")
		}, "a b", nil},
		"three in all": {func(r *rig) {
			for _, name := range []string{"a", "b", "c", "d"} {
				r.host(name)
			}
			failing(r, tunnel.ErrFiltered, "a", "b", "c")
		}, "a b c", tunnel.ErrFiltered},
		"hosts without a tunnel don't count": {func(r *rig) {
			for _, name := range []string{"a", "b", "c", "d"} {
				r.host(name)
			}
			failing(r, tunnel.ErrAbsent, "a", "b", "c")
		}, "a b c d", nil},
		"no tunnel at all": {func(r *rig) {
			r.host("a")
			failing(r, tunnel.ErrAbsent, "a")
		}, "a", tunnel.ErrAbsent},
		"an unready one last": {func(r *rig) {
			r.host("a", unready)
			r.host("b")
			failing(r, tunnel.ErrClosed, "b")
		}, "b a", nil},
		"workers after the control plane": {func(r *rig) {
			r.host("a", worker)
			r.host("b")
			failing(r, tunnel.ErrAbsent, "b")
		}, "b a", nil},
		"workers with a tunnel only": {func(r *rig) {
			r.host("a", worker, func(h *infrav1.ElementalHost) { h.Status.Tunnel = nil })
			r.host("b")
			failing(r, tunnel.ErrAbsent, "b")
		}, "b", tunnel.ErrAbsent},
		"no host": {func(*rig) {}, "", router.ErrNoHost},
		"hosts that must not be used": {func(r *rig) {
			r.host("fenced", func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} })
			r.host("locked", func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{} })
			r.host("held", func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimHeld })
			r.host("free", func(h *infrav1.ElementalHost) { h.Spec.Claim = nil })
			r.host("other", func(h *infrav1.ElementalHost) { h.Spec.Claim.ClusterName = "other" })
			r.host("gone", func(h *infrav1.ElementalHost) { h.Spec.Claim.MachineName = "gone" })
		}, "", router.ErrNoHost},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tc.setUp(r)
			conn, err := r.router.Dial(t.Context(), edgeName)
			r.Expect(r.tunnels.takeDialed()).To(Equal(tc.dialed))
			if tc.err != nil {
				r.Expect(err).To(MatchError(tc.err))
				return
			}
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(conn.Close()).To(Succeed())
		})
	}
}

// Connections of one client stay on one host while it serves.
func TestTheHostThatServedLastComesFirst(t *testing.T) {
	r := newRig(t)
	r.host("a")
	r.host("b")
	r.tunnels.hosts["a"].err = tunnel.ErrRefused
	first := r.dial()
	r.tunnels.hosts["a"].err = nil
	r.tunnels.takeDialed()
	second := r.dial()
	r.Expect(r.tunnels.takeDialed()).To(Equal("b"))
	r.Expect(first.Close()).To(Succeed())
	r.Expect(second.Close()).To(Succeed())
	third := r.dial()
	r.Expect(r.tunnels.takeDialed()).To(Equal("a"), "without connections nothing is remembered, and a has fewer streams")
	r.Expect(third.Close()).To(Succeed())
}

func TestNoFurtherHostAfterTheEndOfTheDial(t *testing.T) {
	r := newRig(t)
	r.host("a")
	r.host("b")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("caller hung up")
	r.tunnels.during = func(string) { cancel(ended) }
	_, err := r.router.Dial(ctx, edgeName)
	r.Expect(err).To(MatchError(ended))
	r.Expect(r.tunnels.takeDialed()).To(Equal("a"))
}

// A caller who has hung up is not told that hosts have no tunnels.
func TestNoHostAfterTheEndOfTheDial(t *testing.T) {
	r := newRig(t)
	r.host("a")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("caller hung up")
	cancel(ended)
	_, err := r.router.Dial(ctx, edgeName)
	r.Expect(err).To(MatchError(ended))
	r.Expect(err).NotTo(MatchError(tunnel.ErrAbsent))
	r.Expect(r.tunnels.takeDialed()).To(BeEmpty())
}

// A host that does not answer is counted as one.
func TestHostThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host("a")
		r.tunnels.during = func(string) { time.Sleep(10 * time.Second) }
		_, err := r.router.Dial(t.Context(), edgeName)
		r.Expect(err).To(MatchError(tunnel.ErrFiltered))
	})
}

// The end of one direction reaches the API server only if the tunnel can pass it on.
func TestEndOfOneDirection(t *testing.T) {
	r := newRig(t)
	r.host("a")
	conn := r.dial()
	half, ok := conn.(interface{ CloseWrite() error })
	r.Expect(ok).To(BeTrue())
	r.Expect(half.CloseWrite()).To(MatchError(errors.ErrUnsupported), "a pipe can't")
	r.Expect(conn.Close()).To(Succeed())
}

// The gateway counts each class of error, and no class hides another.
func TestDialErrors(t *testing.T) {
	g := NewWithT(t)
	classes := router.DialErrors()
	for name, err := range classes {
		for other, class := range classes {
			g.Expect(errors.Is(err, class)).To(Equal(name == other), "%s and %s", name, other)
		}
	}
	g.Expect(classes).To(HaveLen(7))
}
