package v1beta2_test

import (
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// `kubectl get eh` reads like a fleet: the API server fills the columns from a host.
func TestColumnsOfHosts(t *testing.T) {
	g := NewWithT(t)
	namespace := env.Namespace(t)
	c := env.Client(t)
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "edge-1", Labels: map[string]string{infrav1.DefaultFailureDomainLabel: "berlin"},
	}}
	g.Expect(c.Create(t.Context(), host)).To(Succeed())
	before := host.DeepCopy()
	host.Status.Inventory = &infrav1.HostInventory{CPU: infrav1.HostCPU{Cores: 32}, MemoryBytes: 64 << 30}
	host.Status.Agent = &infrav1.HostAgent{Version: "v0.1.0"}
	host.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected, Since: metav1.NewTime(time.Now().Add(-400*24*time.Hour - time.Hour))}
	g.Expect(c.Status().Patch(t.Context(), host, client.MergeFrom(before))).To(Succeed())

	clients, err := kubernetes.NewForConfig(env.Config)
	g.Expect(err).NotTo(HaveOccurred())
	raw, err := clients.RESTClient().Get().AbsPath("/apis", infrav1.GroupVersion.Group, infrav1.GroupVersion.Version).
		Namespace(namespace).Resource("elementalhosts").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	table := &metav1.Table{}
	g.Expect(json.Unmarshal(raw, table)).To(Succeed())
	g.Expect(table.Rows).To(HaveLen(1))
	cells, wide := map[string]any{}, map[string]bool{}
	for i, column := range table.ColumnDefinitions {
		cells[column.Name], wide[column.Name] = table.Rows[0].Cells[i], column.Priority > 0
	}
	for name, want := range map[string]struct {
		cell   any
		isWide bool
	}{
		"Name": {"edge-1", false}, "Zone": {"berlin", false}, "Cores": {BeEquivalentTo(32), false}, "Since": {"400d", false},
		"Memory": {BeEquivalentTo(int64(64 << 30)), true}, "Agent": {"v0.1.0", false},
	} {
		g.Expect(cells).To(HaveKeyWithValue(name, want.cell), name)
		g.Expect(wide[name]).To(Equal(want.isWide), name)
	}
}
