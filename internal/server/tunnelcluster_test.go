package server_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/router"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// nobody is what reaches returns if no host carries the connection.
const nobody = "nobody"

// clusters are the clusters c and d of type Tunnel, with the gateway's router.
type clusters struct {
	h      *harness
	names  endpointname.Names
	router *router.Router
}

func (h *harness) clusters() *clusters {
	h.tb.Helper()
	c := &clusters{h: h, names: endpointname.Names{ClusterDomain: "cluster.local"}}
	c.router = router.New(router.Options{Cache: h.cached, Tunnels: h.server, Names: c.names})
	for _, name := range []string{"c", "d"} {
		h.infraCluster(name, "", ofTypeTunnel, func(infra *infrav1.ElementalCluster) {
			infra.Spec.ControlPlaneEndpoint.Host = c.names.Of(h.namespace, name)
		})
	}
	return c
}

// machine creates a Machine.
func (c *clusters) machine(cluster, name string) {
	c.h.tb.Helper()
	m := &clusterv1.Machine{}
	m.Namespace, m.Name = c.h.namespace, name
	m.Spec.ClusterName, m.Spec.Bootstrap.DataSecretName = cluster, new(name)
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name}
	c.h.must(c.h.admin.Create(c.h.tb.Context(), m))
	c.h.cachedSoon(m)
}

// reaches returns the name of the host that a connection to the name of a cluster reaches.
func (c *clusters) reaches(cluster string) string {
	conn, err := c.router.Dial(c.h.tb.Context(), c.names.Of(c.h.namespace, cluster))
	switch {
	case errors.Is(err, router.ErrNoHost), errors.Is(err, tunnel.ErrAbsent), errors.Is(err, tunnel.ErrClosed):
		return nobody
	case err != nil:
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	greeting, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(greeting)
}

// A host's tunnel carries the traffic of its own cluster only, whatever becomes of the host.
func TestThreat10_TunnelsCarryTheirOwnCluster(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	c := h.clusters()
	c.machine("c", "m1")
	c.machine("d", "m2")
	c.machine("d", "m3")
	a, b := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "m2", infrav1.RoleControlPlane)
	h.cachedSoon(h.patch(b.name, func(host *infrav1.ElementalHost) { host.Spec.Claim.ClusterName = "d" }))
	b.openTunnel("boot-1")
	expect := func(why string, ofC, ofD string) {
		t.Helper()
		g.Eventually(func() string { return c.reaches("c") }, eventually, often).Should(Equal(ofC), why)
		g.Expect(c.reaches("d")).To(Equal(ofD), why)
	}
	expect("no tunnel", nobody, b.name)
	ended := a.openTunnel("boot-1")
	expect("a tunnel", a.name, b.name)

	for name, change := range map[string]func(host *infrav1.ElementalHost, on bool){
		"locked": func(host *infrav1.ElementalHost, on bool) {
			if host.Spec.Lock = nil; on {
				host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
			}
		},
		"fenced": func(host *infrav1.ElementalHost, on bool) {
			if host.Spec.Fence = nil; on {
				host.Spec.Fence = &infrav1.HostFence{Reason: "dead"}
			}
		},
	} {
		h.patch(a.name, func(host *infrav1.ElementalHost) { change(host, true) })
		a.expectEnd(ended)
		expect(name, nobody, b.name)
		h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) { change(host, false) }))
		g.Expect(a.planOf("boot-1").status).To(Equal(http.StatusOK))
		ended = a.openTunnel("boot-1")
		expect("no longer "+name, a.name, b.name)
	}

	h.settle()
	next := h.agent()
	got := a.rotate(next, 1)
	g.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
	g.Expect(next.planOf("boot-1").status).To(Equal(http.StatusOK))
	a.expectEnd(ended)
	expect("rotated", nobody, b.name)
	clone := h.agentWith(a.key)
	next.name, next.id = a.name, a.id
	ended = next.openTunnel("boot-1")
	expect("the next key", a.name, b.name)
	_, got = clone.asks(upgradeOf("boot-1"))
	g.Expect(got.status).NotTo(Equal(http.StatusSwitchingProtocols), "the former key")
	_, got = h.agentWith(next.key).asks(upgradeOf("boot-2"))
	g.Expect(got.status).To(Equal(http.StatusConflict), "a copy of the host")
	expect("a clone", a.name, b.name)

	h.patch(a.name, releasing)
	next.expectEnd(ended)
	expect("released", nobody, b.name)
	h.cachedSoon(h.patch(a.name, func(host *infrav1.ElementalHost) {
		host.Spec.Claim = &infrav1.HostClaim{ID: "claim-m3", ClusterName: "d", MachineName: "m3", Phase: infrav1.ClaimBound, Role: infrav1.RoleControlPlane}
	}))
	expect("claimed again, not bootstrapped", nobody, b.name)
	g.Expect(next.reportOperation(protocol.OperationBootstrap, "claim-m3", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	h.cachedSoon(h.host(a.name))
	g.Expect(next.planOf("boot-1").status).To(Equal(http.StatusOK))
	next.openTunnel("boot-1")
	h.cachedSoon(h.patch(b.name, func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }))
	expect("claimed again", nobody, a.name)
}
