//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/survey"
)

const (
	// upgradeTimeout bounds an upgrade of one host.
	upgradeTimeout = 15 * time.Minute
	// keptFile is a file on a host that an upgrade must keep.
	keptFile = "/var/lib/kept"
)

var _ = Describe("Kubernetes from bundles", Ordered, Label("upgrade"), func() {
	var (
		site    *bareSite
		figures upgradeFigures
	)

	BeforeAll(func(ctx context.Context) { site = startBareSite(ctx, bareHosts) }, NodeTimeout(60*time.Minute))

	It("is installed on bare hosts, and removed by the reset", func(ctx context.Context) {
		w := site.workload("prepared", 1, 1)
		before := site.survey(ctx)
		step("prepared: 1+1 running on bare hosts", func() {
			w.create(ctx)
			w.expectRunning(ctx, 2)
			w.expectVersion(ctx, site.previous.Version)
		})
		step("prepared: cluster deleted, hosts as bare as before", func() {
			w.delete(ctx)
			site.expectAvailable(ctx)
			for _, box := range site.boxes {
				now, err := survey.Take(ctx, box)
				Expect(err).NotTo(HaveOccurred())
				Expect(strings.Join(survey.Diff(before[box.Name], now), "\n")).To(BeEmpty(), "host %s", box.Name)
			}
		})
	}, SpecTimeout(30*time.Minute))

	It("is upgraded in place on the only node of a cluster", func(ctx context.Context) {
		w := site.workload("single", 1, 0)
		step("single: 1+0 running", func() {
			w.createInPlace(ctx)
			w.expectRunning(ctx, 1)
		})
		before := w.nodes(ctx)
		host := w.claimedHosts(ctx)[0]
		box := site.box(&host)
		_, err := box.Exec(ctx, "touch", keptFile)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.client(ctx).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}})).To(Succeed())
		calls := w.call(ctx, time.Second)
		receivedBefore := received(ctx, box)
		step("single: upgraded to "+site.current.Version, func() {
			w.bump(ctx, site.current.Version)
			w.expectUpgraded(ctx, before, site.current.Version)
		})
		calls.stop()
		figures = upgradeFigures{steps: stepTimes(ctx, box), away: calls.totalOutage(), received: received(ctx, box) - receivedBefore}
		fmt.Printf("  the API was away for %.1f s, steps: %v\n", figures.away.Seconds(), figures.steps)
		Expect(figures.away).To(BeNumerically("<=", 2*time.Minute))
		_, err = box.Exec(ctx, "test", "-e", keptFile)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.client(ctx).Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kept"}, &corev1.ConfigMap{})).To(Succeed())
		w.expectNoReset(ctx)
		step("single: cluster deleted", func() {
			w.delete(ctx)
			site.expectAvailable(ctx)
		})
	}, SpecTimeout(45*time.Minute))

	It("is upgraded in place without a spare host", func(ctx context.Context) {
		w := site.workload("full", 3, 2)
		step("full: 3+2 running", func() {
			w.createInPlace(ctx)
			w.expectRunning(ctx, 5)
		})
		before := w.nodes(ctx)
		endpoint := w.infra(ctx).Spec.ControlPlaneEndpoint.Host
		w.protectDNS(ctx)
		calls := w.call(ctx, time.Second)
		step("full: upgraded to "+site.current.Version, func() {
			w.bump(ctx, site.current.Version)
			w.expectUpgraded(ctx, before, site.current.Version)
		})
		calls.stop()
		away := calls.totalOutage()
		fmt.Printf("  the API was away for %.1f s\n", away.Seconds())
		Expect(away).To(BeNumerically("<=", 30*time.Second))
		Expect(w.infra(ctx).Spec.ControlPlaneEndpoint.Host).To(Equal(endpoint))
		w.expectNoReset(ctx)
		step("full: cluster deleted", func() {
			w.delete(ctx)
			site.expectAvailable(ctx)
		})
	}, SpecTimeout(90*time.Minute))

	// This spec is the last one: the reset leaves programs that somebody has replaced.
	It("takes little longer than kubeadm by hand", func(ctx context.Context) {
		w := site.workload("by-hand", 1, 0)
		step("by-hand: 1+0 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 1)
		})
		host := w.claimedHosts(ctx)[0]
		var by manualTimes
		step("by-hand: upgraded to "+site.current.Version, func() { by = w.upgradeByHand(ctx, site.box(&host), site.current) })
		figures.report(ctx, by, site.current)
		step("by-hand: cluster deleted", func() {
			w.delete(ctx)
			site.expectAvailable(ctx)
		})
	}, SpecTimeout(30*time.Minute))
})

// workload returns a cluster of the previous version of Kubernetes on the bare hosts.
func (s *bareSite) workload(name string, controlPlanes, workers int) workload {
	return workload{lab.Cluster{
		Name: name, Namespace: bareNamespace, Version: s.previous.Version, ControlPlanes: controlPlanes, Workers: workers,
	}}
}

func (s *bareSite) survey(ctx context.Context) surveys {
	GinkgoHelper()
	taken := surveys{}
	for _, box := range s.boxes {
		found, err := survey.Take(ctx, box)
		Expect(err).NotTo(HaveOccurred())
		taken[box.Name] = found
	}
	return taken
}

// createInPlace applies a generated cluster that is changed in place only, and needs no spare host.
func (w workload) createInPlace(ctx context.Context) {
	GinkgoHelper()
	set := func(object *unstructured.Unstructured, value any, path ...string) {
		GinkgoHelper()
		Expect(unstructured.SetNestedField(object.Object, value, path...)).To(Succeed())
	}
	w.createModified(ctx, func(object *unstructured.Unstructured) {
		switch object.GetKind() {
		case "ElementalCluster":
			set(object, string(infrav1.InPlaceRequired), "spec", "inPlace", "mode")
		case "KubeadmControlPlane":
			if w.ControlPlanes >= 3 {
				set(object, int64(0), "spec", "rollout", "strategy", "rollingUpdate", "maxSurge")
				set(object, "RollingUpdate", "spec", "rollout", "strategy", "type")
			}
		case "MachineDeployment":
			set(object, "RollingUpdate", "spec", "rollout", "strategy", "type")
			set(object, int64(0), "spec", "rollout", "strategy", "rollingUpdate", "maxSurge")
			set(object, int64(1), "spec", "rollout", "strategy", "rollingUpdate", "maxUnavailable")
		}
	})
}

// bump sets the version of the control plane and of the workers at once.
func (w workload) bump(ctx context.Context, version string) {
	GinkgoHelper()
	w.bumpControlPlane(ctx, version)
	if w.Workers > 0 {
		w.bumpWorkers(ctx, version)
	}
}

func (w workload) bumpControlPlane(ctx context.Context, version string) {
	GinkgoHelper()
	kubectl(ctx, "--namespace", w.namespace(), "patch", "kubeadmcontrolplane", w.Name+"-control-plane", "--type", "merge",
		"--patch", fmt.Sprintf(`{"spec":{"version":%q}}`, version))
}

func (w workload) bumpWorkers(ctx context.Context, version string) {
	GinkgoHelper()
	kubectl(ctx, "--namespace", w.namespace(), "patch", "machinedeployment", w.Name+"-md-0", "--type", "merge",
		"--patch", fmt.Sprintf(`{"spec":{"template":{"spec":{"version":%q}}}}`, version))
}

// nodeIdentity is what an upgrade in place keeps of a Node.
type nodeIdentity struct {
	uid     types.UID
	machine string
}

// nodes returns the identities of the cluster's Nodes by name.
func (w workload) nodes(ctx context.Context) map[string]nodeIdentity {
	GinkgoHelper()
	machines := &clusterv1.MachineList{}
	Expect(management.List(ctx, machines, w.inCluster()...)).To(Succeed())
	all := map[string]nodeIdentity{}
	for _, m := range machines.Items {
		node := &corev1.Node{}
		Expect(w.client(ctx).Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node)).To(Succeed())
		all[node.Name] = nodeIdentity{node.UID, m.Name}
	}
	return all
}

// claimedHosts returns the cluster's ElementalHosts.
func (w workload) claimedHosts(ctx context.Context) []infrav1.ElementalHost {
	GinkgoHelper()
	list := &infrav1.ElementalHostList{}
	Expect(management.List(ctx, list, client.InNamespace(w.namespace()))).To(Succeed())
	var mine []infrav1.ElementalHost
	for _, host := range list.Items {
		if host.Spec.Claim != nil && host.Spec.Claim.ClusterName == w.Name {
			mine = append(mine, host)
		}
	}
	return mine
}

// expectVersion checks the version of all kubelets.
func (w workload) expectVersion(ctx context.Context, version string) {
	GinkgoHelper()
	nodes := &corev1.NodeList{}
	Expect(w.client(ctx).List(ctx, nodes)).To(Succeed())
	for _, node := range nodes.Items {
		Expect(node.Status.NodeInfo.KubeletVersion).To(Equal(version), "Node %s", node.Name)
	}
}

// expectUpgraded waits until all of the same Nodes and Machines have the version.
func (w workload) expectUpgraded(ctx context.Context, before map[string]nodeIdentity, version string) {
	GinkgoHelper()
	c := w.client(ctx)
	Eventually(func(g Gomega) {
		machines := &clusterv1.MachineList{}
		g.Expect(management.List(ctx, machines, w.inCluster()...)).To(Succeed())
		g.Expect(machines.Items).To(HaveLen(len(before)))
		for _, m := range machines.Items {
			g.Expect(m.Status.Phase).To(Equal("Running"), "Machine %s", m.Name)
			g.Expect(meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineUpToDateCondition)).To(BeTrue(), "Machine %s: %+v", m.Name, m.Status.Conditions)
			node := &corev1.Node{}
			g.Expect(c.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node)).To(Succeed())
			g.Expect(before[node.Name]).To(Equal(nodeIdentity{node.UID, m.Name}))
			g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal(version), "Node %s", node.Name)
			g.Expect(ready(node)).To(BeTrue(), "Node %s", node.Name)
			g.Expect(node.Spec.Unschedulable).To(BeFalse(), "Node %s", node.Name)
		}
		pods := &corev1.PodList{}
		g.Expect(c.List(ctx, pods, client.InNamespace("kube-system"), client.MatchingLabels{"tier": "control-plane"})).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(4 * w.ControlPlanes))
		for _, pod := range pods.Items {
			if pod.Labels["component"] != "etcd" {
				g.Expect(pod.Spec.Containers[0].Image).To(HaveSuffix(":"+version), "Pod %s", pod.Name)
			}
		}
	}).WithTimeout(time.Duration(len(before)) * upgradeTimeout).WithPolling(2 * time.Second).Should(Succeed())
	w.expectProxy(ctx, version)
}

// expectProxy waits until Cluster API has set the image of kube-proxy.
func (w workload) expectProxy(ctx context.Context, version string) {
	GinkgoHelper()
	c := w.client(ctx)
	Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(c.List(ctx, pods, client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-proxy"})).To(Succeed())
		g.Expect(pods.Items).NotTo(BeEmpty())
		for _, pod := range pods.Items {
			g.Expect(pod.Spec.Containers[0].Image).To(HaveSuffix(":"+version), "Pod %s", pod.Name)
		}
	}).WithTimeout(provisionTimeout).Should(Succeed())
}

// expectNoReset checks that no host of the cluster was reset since it was bootstrapped.
func (w workload) expectNoReset(ctx context.Context) {
	GinkgoHelper()
	for _, host := range w.claimedHosts(ctx) {
		Expect(host.Operation(infrav1.OperationReset, host.Spec.Claim.ID)).To(BeNil(), "host %s", host.Name)
		Expect(host.IsBootstrapped()).To(BeTrue(), "host %s", host.Name)
	}
}

// protectDNS lets no drain evict both Pods of CoreDNS at a time.
func (w workload) protectDNS(ctx context.Context) {
	GinkgoHelper()
	Expect(w.client(ctx).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		},
	})).To(Succeed())
}
