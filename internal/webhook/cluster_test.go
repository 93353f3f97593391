package webhook_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// A mistyped recipient has the right form, and nobody could read what is encrypted for it.
func testRecipients(t *testing.T) {
	const (
		right    = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
		mistyped = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8q"
	)
	g := NewWithT(t)
	c, meta := env.Client(t), metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t)}
	to := func(recipient string) *infrav1.EtcdSnapshots {
		return &infrav1.EtcdSnapshots{Recipients: []string{recipient}}
	}
	refused := MatchError(ContainSubstring("is no public key of age: compare it with the output of age-keygen"))

	cluster := &infrav1.ElementalCluster{ObjectMeta: meta}
	cluster.Spec.EtcdSnapshots = to(mistyped)
	g.Expect(c.Create(t.Context(), cluster)).To(refused)
	cluster.Spec.EtcdSnapshots = to(right)
	g.Expect(c.Create(t.Context(), cluster)).To(Succeed())
	cluster.Spec.EtcdSnapshots = to(mistyped)
	g.Expect(c.Update(t.Context(), cluster)).To(refused)

	template := &infrav1.ElementalClusterTemplate{ObjectMeta: meta}
	template.Spec.Template.Spec = &infrav1.ElementalClusterSpec{EtcdSnapshots: to(mistyped)}
	g.Expect(c.Create(t.Context(), template)).To(refused)
	template.Spec.Template.Spec.EtcdSnapshots = to(right)
	g.Expect(c.Create(t.Context(), template)).To(Succeed())
	template.Spec.Template.Spec.EtcdSnapshots = to(mistyped)
	g.Expect(c.Update(t.Context(), template)).To(refused)
}
