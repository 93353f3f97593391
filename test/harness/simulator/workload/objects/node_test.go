package objects_test

import (
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

func TestNode(t *testing.T) {
	g := NewWithT(t)
	began := time.Unix(1000, 0)
	kubelet := objects.Kubelet{Name: "n", Version: "v1", Address: netip.MustParseAddr("127.1.2.3"), ControlPlane: true, Labels: map[string]string{"a": "b"}}
	node := kubelet.Node("uid", began)
	g.Expect(objects.IsReady(node)).To(BeTrue())
	g.Expect(node.Labels).To(And(HaveKeyWithValue("a", "b"), HaveKey(objects.ControlPlane)))
	g.Expect(node.Spec.Taints).To(ConsistOf(HaveField("Key", objects.ControlPlane)))
	g.Expect(objects.SetReady(node, began.Add(time.Hour))).To(BeFalse(), "the Node is Ready already")

	g.Expect(objects.SetUnknown(node, began.Add(time.Minute))).To(BeTrue())
	g.Expect(objects.SetUnknown(node, began.Add(time.Hour))).To(BeFalse())
	g.Expect(objects.IsReady(node)).To(BeFalse())
	g.Expect(node.Spec.Taints).To(HaveLen(3))
	g.Expect(objects.SetReady(node, began.Add(2*time.Hour))).To(BeTrue())
	g.Expect(node.Spec.Taints).To(HaveLen(1))

	kubelet.Taints = []corev1.Taint{}
	g.Expect(kubelet.Node("uid", began).Spec.Taints).To(BeEmpty(), "configured taints replace the default")
}

// Labels, taints and providerID that others have set stay.
func TestReregister(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	node := objects.Kubelet{Name: "n", Version: "v1"}.Node("uid", now)
	node.Labels["theirs"], node.Spec.ProviderID = "x", "elemental://x"
	node.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}}
	objects.SetUnknown(node, now)
	objects.Reregister(node, objects.Kubelet{Name: "n", Version: "v2", ControlPlane: true}.Node("other", now))
	g.Expect(node.Labels).To(And(HaveKey("theirs"), HaveKey(objects.ControlPlane)))
	g.Expect(node.Spec.Taints).To(ConsistOf(HaveField("Key", "theirs"), HaveField("Key", objects.ControlPlane)))
	g.Expect(node.Spec.ProviderID).To(Equal("elemental://x"))
	g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal("v2"))
	g.Expect(objects.IsReady(node)).To(BeTrue())
}
