//go:build embedded

package embedded

import (
	"io"
	"net/http"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Of two managers one leads. When it is killed the other serves agents, at the same address.
func TestManagers(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())
	cluster, err := Start(t.Context(), Options{Alone: true, Managers: 2, Diagnostics: true, Progress: os.Stderr})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(cluster.Stop()).To(Succeed()) }()
	admin := newClient(g, cluster.Config)
	lease := &coordinationv1.Lease{}
	holder := func(g Gomega) string {
		g.Expect(admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "elemental-manager-leader-election"}, lease)).To(Succeed())
		return *lease.Spec.HolderIdentity
	}
	managers := cluster.Managers()
	g.Expect(managers).To(HaveLen(2))
	g.Expect(cluster.PIDs()).To(And(HaveLen(5), HaveKeyWithValue("manager", managers[0].PID()), HaveKeyWithValue("manager-2", managers[1].PID())))
	for _, m := range managers {
		g.Expect(get(t, m.Metrics)).To(ContainSubstring("elemental_"), m.Name)
		g.Expect(get(t, m.Profiles+"/goroutine?debug=1")).To(HavePrefix("goroutine profile:"), m.Name)
	}
	first := holder(g)
	testWebhooksAlone(t, admin)

	managers[0].Kill()
	g.Expect(cluster.PIDs()).To(And(HaveLen(4), Not(HaveKey("manager"))))
	g.Eventually(holder).WithTimeout(soon).ShouldNot(Equal(first))
	g.Expect(cluster.findAgentAPI(t.Context())).To(Succeed())
	testWebhooksAlone(t, admin)
	second := holder(g)

	g.Expect(managers[0].Start(t.Context())).To(Succeed())
	g.Expect(cluster.PIDs()).To(HaveKeyWithValue("manager", managers[0].PID()))
	g.Expect(holder(g)).To(Equal(second))
	g.Expect(cluster.Err()).NotTo(HaveOccurred())
}

// testWebhooksAlone sees that this provider's webhooks work and that there are no others.
func testWebhooksAlone(t *testing.T, admin client.Client) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(checks(t.Context(), admin)).To(Succeed())
	g.Expect(changes(t.Context(), admin)).To(MatchError("a Machine was not completed"))
}

func get(t *testing.T, url string) string {
	t.Helper()
	g := NewWithT(t)
	response, err := http.Get(url)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.StatusCode).To(Equal(http.StatusOK), "%s", text)
	return string(text)
}
