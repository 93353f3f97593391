package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// A tunnel ends at once with what entitled its host to it, and its streams with it.
func TestThreat22_RevocationEndsTunnels(t *testing.T) {
	h := start(t)
	h.step(2 * time.Minute) // after the grace period of the start
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	h.infraCluster("d", "", ofTypeTunnel)
	patch := func(change func(*infrav1.ElementalHost)) func(*agent) {
		return func(a *agent) { h.patch(a.name, change) }
	}
	for name, revoke := range map[string]func(*agent){
		"locked":    patch(func(host *infrav1.ElementalHost) { host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} }),
		"fenced":    patch(func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }),
		"rejected":  patch(func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalRejected }),
		"pending":   patch(func(host *infrav1.ElementalHost) { host.Spec.Approval = infrav1.ApprovalPending }),
		"releasing": patch(releasing),
		"free":      patch(func(host *infrav1.ElementalHost) { host.Spec.Claim = nil }),
		"another key": patch(func(host *infrav1.ElementalHost) {
			host.Spec.Identity.KeyFingerprint = h.agent().fingerprint
		}),
		"deleted": func(a *agent) { h.must(h.admin.Delete(context.Background(), h.host(a.name))) },
		"rotated": func(a *agent) {
			next := h.agent()
			if got := a.rotate(next, 1); got.status != http.StatusNoContent {
				t.Errorf("rotating: %d %s", got.status, got.body)
			}
			if got := next.planOf("boot-1"); got.status != http.StatusOK {
				t.Errorf("the next key: %d %s", got.status, got.body)
			}
		},
		"another boot": func(a *agent) {
			if got := a.planOf("boot-2"); got.status != http.StatusOK {
				t.Errorf("another boot: %d %s", got.status, got.body)
			}
		},
		"detected copy": func(a *agent) {
			if got := a.rotate(h.agent(), 1); got.status != http.StatusNoContent {
				t.Errorf("rotating: %d %s", got.status, got.body)
			}
			if got := h.agentWith(a.key).rotate(h.agent(), 1); got.problem().Type != protocol.ProblemLocked {
				t.Errorf("the copy: %d %s", got.status, got.body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := h.tunnelMember(token, "m1", infrav1.RoleControlPlane)
			ended, stream := a.openTunnel("boot-1"), a.stream()
			h.settle()
			revoke(a)
			a.expectEnd(ended)
			_, err := io.ReadAll(stream)
			g.Expect(err).To(MatchError(tunnel.ErrClosed))
		})
	}
}

// stream returns a connection through the host's tunnel on which nothing is sent.
func (a *agent) stream() net.Conn {
	a.h.tb.Helper()
	a.silent.Store(true)
	defer a.silent.Store(false)
	conn, err := a.h.server.Dial(context.WithoutCancel(a.h.tb.Context()), a.hostKey(), protocol.TargetAPIServer)
	a.h.must(err)
	a.h.tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Who looks for the cause of a request can see which host's tunnels were open, and why they
// ended.
func TestThreat12_TunnelsAreInTheAuditLog(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a := h.tunnelMember(token, "m1", infrav1.RoleControlPlane)
	ended := a.openTunnel("boot-1")
	// The table has a tunnel before the log does.
	g.Eventually(func() string { return h.audited("TunnelOpened", a.name) }, eventually, often).Should(And(ContainSubstring(a.fingerprint), ContainSubstring(`"boot":"boot-1"`), ContainSubstring(`"source":"127.0.0.1:`)))
	h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} })
	a.expectEnd(ended)
	g.Eventually(func() string { return h.audited("TunnelEnded", a.name) }, eventually, often).Should(ContainSubstring("fenced"))
}

// A host that another cluster claims does not carry the former one, or the next one, with
// the tunnel that it has.
func TestThreat10_TunnelOfAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	h.infraCluster("d", "", ofTypeTunnel)
	a := h.tunnelMember(token, "m1", infrav1.RoleControlPlane)
	ended := a.openTunnel("boot-1")
	// In one step, which is the worst case: nobody has seen the host free.
	h.patch(a.name, func(host *infrav1.ElementalHost) {
		host.Spec.Claim.ID, host.Spec.Claim.ClusterName, host.Spec.Claim.MachineName = "claim-d1", "d", "d1"
	})
	a.expectEnd(ended)
	before := h.host(a.name).DeepCopy()
	_, got := a.asks(upgradeOf("boot-1"))
	g.Expect(got.status).To(Equal(http.StatusForbidden), "the host is not bootstrapped for the other cluster")
	g.Expect(h.host(a.name).Status.Operations).To(Equal(before.Status.Operations))
}

// A worker carries its cluster only while the control plane can't.
func TestWorkersCarryTheClusterMeanwhile(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	controlPlane, worker := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "w1", infrav1.RoleWorker)
	ended := controlPlane.openTunnel("boot-1")
	g.Eventually(func() bool { return h.host(controlPlane.name).HasTunnel() }, eventually, often).Should(BeTrue())
	revision := worker.revisionOf("boot-1")

	h.patch(controlPlane.name, func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} })
	controlPlane.expectEnd(ended)
	answers := worker.pollOf(t.Context(), "boot-1", revision)
	g.Expect(receive(t, answers).body).To(ContainSubstring(`"tunnel":true`))
	ended = worker.openTunnel("boot-1")

	h.patch(controlPlane.name, func(host *infrav1.ElementalHost) { host.Spec.Fence = nil })
	h.cachedSoon(h.host(controlPlane.name))
	controlPlane.openTunnel("boot-1")
	worker.expectEnd(ended)
}

// A Machine that is being deleted takes its API server from the plans of the other hosts.
func TestPlansHaveTheAPIServersOfOtherHosts(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a, worker := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "w1", infrav1.RoleWorker)
	machine := &clusterv1.Machine{}
	machine.Namespace, machine.Name, machine.Finalizers = h.namespace, "m1", []string{"example.com/x"}
	machine.Spec.ClusterName, machine.Spec.Bootstrap.DataSecretName = "c", new("m1")
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: "m1"}
	h.must(h.admin.Create(t.Context(), machine))
	h.cachedSoon(machine)

	answers := worker.pollOf(t.Context(), "boot-1", worker.revisionOf("boot-1"))
	h.polling(1)
	a.reportEndpoint(protocol.EndpointReport{Local: "c-endpoint:16443", APIServer: &protocol.APIServer{Ready: true, Address: "10.0.0.5:6443"}})
	g.Expect(receive(t, answers).body).To(ContainSubstring(`"local":{"backends":["10.0.0.5:6443"]}`))
	g.Expect(h.host(a.name).Status.Endpoint.Local).To(Equal("c-endpoint:16443"))
	h.settledWrites()

	answers = worker.pollOf(t.Context(), "boot-1", worker.revisionOf("boot-1"))
	h.polling(1)
	h.must(h.admin.Delete(t.Context(), machine))
	g.Expect(receive(t, answers).body).To(ContainSubstring(`"local":{}`))
	g.Expect(h.settledWrites()).To(BeEmpty())
	before := machine.DeepCopy()
	machine.Finalizers = nil
	h.must(h.admin.Patch(t.Context(), machine, client.MergeFrom(before)))
}
