package webhook_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Whoever has a restore begin is named, once.
func TestThreat56_WhoConfirmsARestoreIsRecorded(t *testing.T) {
	out := &logOutput{}
	serve(t, out)
	g := NewWithT(t)
	alice, bob := clientOf(t, "alice"), clientOf(t, "bob")
	restore := newRestore(env.Namespace(t))
	g.Expect(alice.Create(t.Context(), restore)).To(Succeed())
	confirmed := restore.DeepCopy()
	confirmed.Spec.Confirm = "c"
	g.Expect(bob.Update(t.Context(), confirmed.DeepCopy(), client.DryRunAll)).To(Succeed())
	g.Expect(out.lines("ElementalEtcdRestore", restore)).To(BeEmpty(), "neither the creation nor the dry run begins anything")

	g.Expect(bob.Update(t.Context(), confirmed)).To(Succeed())
	confirmed.Labels = map[string]string{"a": "b"}
	g.Expect(alice.Update(t.Context(), confirmed)).To(Succeed())
	g.Expect(out.lines("ElementalEtcdRestore", restore)).To(HaveExactElements(And(
		line("RestoreConfirmed", "bob", restore.Generation+1),
		ContainSubstring(`clusterName="c" hostName="h" snapshotID="s" replaceHealthy=false rebuildControlPlane=false`),
	)))

	whole := newRestore(restore.Namespace)
	whole.Spec.Confirm = "c"
	g.Expect(alice.Create(t.Context(), whole)).To(Succeed())
	g.Expect(out.lines("ElementalEtcdRestore", whole)).To(HaveExactElements(line("RestoreConfirmed", "alice", 1)))
	g.Expect(strings.Join(out.lines("ElementalEtcdRestore", whole), "")).NotTo(ContainSubstring("ElementalHost"))
}
