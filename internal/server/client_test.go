package server_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	runtimeclient "sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// client returns the agent's own client with the key.
func (a *agent) client() *client.Client {
	h := a.h
	h.tb.Helper()
	secret := &corev1.Secret{}
	h.must(h.admin.Get(h.tb.Context(), runtimeclient.ObjectKey{Namespace: h.namespace, Name: authority.SecretName}, secret))
	cert, err := identity.ClientCertificate(a.key)
	h.must(err)
	c, err := client.New(client.Options{
		Servers: []string{h.url}, TrustBundle: string(secret.Data[authority.BundleKey]), Certificate: cert, UserAgent: "test",
	})
	h.must(err)
	h.tb.Cleanup(c.Close)
	return c
}

// The agent's own client opens a tunnel, and says why it can't.
func TestAgentsTunnel(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	token := h.fleet()
	h.infraCluster("c", "", ofTypeTunnel)
	a, worker := h.tunnelMember(token, "m1", infrav1.RoleControlPlane), h.tunnelMember(token, "w1", infrav1.RoleWorker)
	_, err := worker.client().Tunnel(t.Context(), "boot-1")
	g.Expect(err).To(MatchError(ContainSubstring("The host's plan asks for no tunnel")))
	c := a.client()
	_, err = c.Tunnel(t.Context(), "boot-2")
	g.Expect(err).To(MatchError(ContainSubstring("Another boot")))
	conn, err := c.Tunnel(t.Context(), "boot-1")
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- tunnel.Serve(context.WithoutCancel(t.Context()), conn, a.greet) }()
	g.Eventually(a.reached, eventually, often).Should(Equal(a.name))
	h.patch(a.name, func(host *infrav1.ElementalHost) { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} })
	a.expectEnd(ended)
}

// The agent's own client goes through all routes.
func TestAgentsClient(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	a, next := h.agent(), h.agent()
	c := a.client()
	_, err := c.Plan(t.Context(), "", "boot-1")
	g.Expect(client.IsProblem(err, protocol.ProblemUnknownHost)).To(BeTrue())
	_, err = c.Enrol(t.Context(), "wrong", enrolRequest())
	g.Expect(client.IsProblem(err, protocol.ProblemTokenRefused)).To(BeTrue())
	response, err := c.Enrol(t.Context(), token, enrolRequest())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Approved).To(BeTrue())
	h.cachedSoon(h.host(response.Name))

	h.chain(response.Name, "m1").create(h)
	p, err := c.Plan(t.Context(), "", "boot-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Operation.ID).To(Equal("claim-m1"))
	data, format, err := c.Bootstrap(t.Context(), p.Operation.ID)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(data)).To(Equal("#cloud-config of m1"))
	g.Expect(format).To(Equal(protocol.FormatCloudConfig))
	g.Expect(c.Report(t.Context(), protocol.Report{Operations: []protocol.OperationReport{
		{Type: protocol.OperationBootstrap, ID: p.Operation.ID, State: protocol.StateSucceeded},
	}})).To(Succeed())
	_, _, err = c.Bootstrap(t.Context(), p.Operation.ID)
	g.Expect(client.IsProblem(err, protocol.ProblemNoOperation)).To(BeTrue())

	g.Expect(c.Rotate(t.Context(), rotation(t, a, next, 1))).To(Succeed())
	_, err = next.client().Plan(t.Context(), "", "boot-1")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.Plan(t.Context(), "", "boot-1")
	g.Expect(client.IsProblem(err, protocol.ProblemStaleGeneration)).To(BeTrue())
}
