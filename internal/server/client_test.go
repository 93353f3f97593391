package server_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	runtimeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

// The agent's own client goes through all routes.
func TestAgentsClient(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 2 })
	secret := &corev1.Secret{}
	h.must(h.admin.Get(t.Context(), runtimeclient.ObjectKey{Namespace: h.namespace, Name: authority.SecretName}, secret))
	connect := func(a *agent) *client.Client {
		cert, err := identity.ClientCertificate(a.key)
		g.Expect(err).NotTo(HaveOccurred())
		c, err := client.New(client.Options{
			Servers: []string{h.url}, TrustBundle: string(secret.Data[authority.BundleKey]), Certificate: cert, UserAgent: "test",
		})
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(c.Close)
		return c
	}
	a, next := h.agent(), h.agent()
	c := connect(a)
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
	_, err = connect(next).Plan(t.Context(), "", "boot-1")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.Plan(t.Context(), "", "boot-1")
	g.Expect(client.IsProblem(err, protocol.ProblemStaleGeneration)).To(BeTrue())
}
