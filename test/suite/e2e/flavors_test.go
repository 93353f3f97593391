//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

var _ = Describe("Flavors for few hosts", Label("flavors"), func() {
	It("single-node runs Pods on its only Node", func(ctx context.Context) {
		w := workload{lab.Cluster{Name: "single", Flavor: "single-node", ControlPlanes: 1}}
		step("flavors: single-node running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 1)
		})
		step("flavors: a Pod runs beside the control plane", func() { w.expectPodRuns(ctx) })
		step("flavors: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))

	It("no-spare replaces all Machines on the hosts that the cluster has", func(ctx context.Context) {
		const wanted = "flavor"
		w := workload{lab.Cluster{Name: "no-spare", Flavor: "no-spare", ControlPlanes: 3, Workers: 1, Variables: map[string]string{
			"CONTROL_PLANE_HOST_LABELS": wanted + ": no-spare", "WORKER_HOST_LABELS": wanted + ": no-spare",
		}}}
		list := elementalHosts(ctx)
		Expect(len(list)).To(BeNumerically(">=", 4), "this spec needs four hosts")
		for _, host := range list[:4] {
			kubectl(ctx, "--namespace", host.Namespace, "label", "elementalhost", host.Name, wanted+"=no-spare")
			DeferCleanup(func(ctx context.Context) {
				kubectl(ctx, "--namespace", host.Namespace, "label", "elementalhost", host.Name, wanted+"-")
			})
		}
		step("flavors: no-spare 3+1 running on four hosts", func() {
			w.create(ctx)
			w.expectRunning(ctx, 4)
		})
		before := w.uidsOfHosts(ctx)
		step("flavors: control plane rolled without a spare host", func() {
			w.rollOut(ctx)
			w.expectRunning(ctx, 4)
		})
		step("flavors: worker rolled without a spare host", func() {
			former := w.machines(ctx)
			kubectl(ctx, "--namespace", namespace, "patch", "machinedeployment", w.Name+"-md-0", "--type", "merge",
				"--patch", `{"spec":{"rollout":{"after":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}`)
			Eventually(func(g Gomega) {
				kept := 0
				for uid := range w.machines(ctx) {
					if _, found := former[uid]; found {
						kept++
					}
				}
				g.Expect(kept).To(Equal(3), "the Machines of the control plane stay")
			}).WithTimeout(rolloutTimeout).Should(Succeed())
			w.expectRunning(ctx, 4)
		})
		Expect(w.uidsOfHosts(ctx)).To(Equal(before))
		step("flavors: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(60*time.Minute))
})

// uidsOfHosts returns which hosts the cluster has.
func (w workload) uidsOfHosts(ctx context.Context) sets.Set[types.UID] {
	GinkgoHelper()
	uids := sets.New[types.UID]()
	for _, host := range w.claimedHosts(ctx) {
		uids.Insert(host.UID)
	}
	return uids
}

// expectPodRuns waits until a Pod runs that tolerates no taint. Hosts have only the images of Kubernetes, and etcd's
// runs without a shell and without rights.
func (w workload) expectPodRuns(ctx context.Context) {
	GinkgoHelper()
	c := w.client(ctx)
	etcd := &corev1.PodList{}
	Expect(c.List(ctx, etcd, client.InNamespace("kube-system"), client.MatchingLabels{"component": "etcd"})).To(Succeed())
	Expect(etcd.Items).NotTo(BeEmpty())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "plain", Image: etcd.Items[0].Spec.Containers[0].Image, ImagePullPolicy: corev1.PullNever,
			Command: []string{"etcd", "--data-dir", "/tmp/data"},
		}}},
	}
	Eventually(func() error { return c.Create(ctx, pod.DeepCopy()) }).WithTimeout(time.Minute).Should(Succeed(), "the ServiceAccount must be there")
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%+v", pod.Status.Conditions)
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}
