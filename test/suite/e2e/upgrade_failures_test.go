//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
)

// otherBundle is a file on a host that is not the bundle that the release pins.
const otherBundle = "/var/tmp/other.bundle"

var _ = Describe("An upgrade in place that fails", Ordered, Label("upgrade-failures"), func() {
	var (
		site                      *bareSite
		w                         workload
		before                    map[string]nodeIdentity
		kubeletExits, serverExits image.Bundle
		controlPlane, worker      string
		box                       *engine.Host
	)

	BeforeAll(func(ctx context.Context) {
		site = startBareSite(ctx, bareHosts)
		step("upgrade: bundles with defects built", func() {
			var err error
			kubeletExits, err = lab.NewBare(hosts).Bundle(ctx, image.Current, image.KubeletExits)
			Expect(err).NotTo(HaveOccurred())
			serverExits, err = lab.NewBare(hosts).Bundle(ctx, image.Current, image.ServerExits)
			Expect(err).NotTo(HaveOccurred())
			serveBundles(ctx, kubeletExits, serverExits)
		})
		w = site.workload("failing", 1, 1)
		step("failing: 1+1 running, with health checks of 60 s", func() {
			w.createInPlace(ctx)
			w.expectRunning(ctx, 2)
			w.applyHealthCheck(ctx, map[string]string{"MAX_UNHEALTHY_WORKERS": `"100%"`, "UNHEALTHY_SECONDS": "60"})
		})
		before = w.nodes(ctx)
		controlPlane, box = site.machineOf(ctx, w, true)
		worker, _ = site.machineOf(ctx, w, false)
	}, NodeTimeout(75*time.Minute))

	It("changes nothing if the bundle has another digest", func(ctx context.Context) {
		_, err := box.Exec(ctx, "truncate", fmt.Sprintf("--size=%d", site.current.Size), otherBundle)
		Expect(err).NotTo(HaveOccurred())
		release(ctx, site.current, "file:"+otherBundle)
		w.bumpControlPlane(ctx, site.current.Version)
		step("failing: wrong digest named", func() {
			w.expectUpgradeFailed(ctx, controlPlane, infrav1.UpgradeFailedReason, "nothing was changed", "digest")
		})
		w.expectSameNodes(ctx, before, site.previous.Version, site.previous.Version)
	}, SpecTimeout(20*time.Minute))

	It("changes nothing if the disk is full", func(ctx context.Context) {
		const folder = "/var/lib/elemental/agent/checkpoints"
		_, err := box.Exec(ctx, "sh", "-c", "mkdir -p -m 0700 "+folder+" && mount -t tmpfs -o size=8m full "+folder)
		Expect(err).NotTo(HaveOccurred())
		release(ctx, site.current)
		w.retry(ctx, controlPlane)
		step("failing: full disk named", func() {
			w.expectUpgradeFailed(ctx, controlPlane, infrav1.UpgradeFailedReason, "nothing was changed", "at step checkpoint", "no space left")
		})
		_, err = box.Exec(ctx, "umount", folder)
		Expect(err).NotTo(HaveOccurred())
		w.expectSameNodes(ctx, before, site.previous.Version, site.previous.Version)
	}, SpecTimeout(20*time.Minute))

	It("goes back if the new API server exits", func(ctx context.Context) {
		release(ctx, serverExits)
		w.retry(ctx, controlPlane)
		step("failing: rolled back after the API server exited", func() {
			w.expectUpgradeFailed(ctx, controlPlane, infrav1.UpgradeRolledBackReason, "rolled back", "at step kubeadm")
		})
		w.expectSameNodes(ctx, before, site.previous.Version, site.previous.Version)
	}, SpecTimeout(45*time.Minute))

	It("succeeds when it is tried again with the right bundle", func(ctx context.Context) {
		release(ctx, site.current)
		w.retry(ctx, controlPlane)
		step("failing: control plane upgraded", func() { w.expectMachineUpgraded(ctx, controlPlane) })
		w.expectSameNodes(ctx, before, site.current.Version, site.previous.Version)
	}, SpecTimeout(30*time.Minute))

	It("goes back if the new kubelet exits", func(ctx context.Context) {
		release(ctx, kubeletExits)
		w.bumpWorkers(ctx, site.current.Version)
		step("failing: rolled back after the kubelet exited", func() {
			w.expectUpgradeFailed(ctx, worker, infrav1.UpgradeRolledBackReason, "rolled back", site.previous.Version)
		})
		w.expectSameNodes(ctx, before, site.current.Version, site.previous.Version)
		release(ctx, site.current)
		w.retry(ctx, worker)
		step("failing: all upgraded", func() { w.expectUpgraded(ctx, before, site.current.Version) })
		w.expectNoReset(ctx)
		step("failing: cluster deleted", func() {
			w.delete(ctx)
			site.expectAvailable(ctx)
		})
	}, SpecTimeout(60*time.Minute))
})

// machineOf returns the name of a cluster's only control-plane Machine or only worker, and its lab host.
func (s *bareSite) machineOf(ctx context.Context, w workload, isControlPlane bool) (string, *engine.Host) {
	GinkgoHelper()
	for _, host := range w.claimedHosts(ctx) {
		machine := &clusterv1.Machine{}
		Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: host.Spec.Claim.MachineName}, machine)).To(Succeed())
		if _, is := machine.Labels[clusterv1.MachineControlPlaneLabel]; is == isControlPlane {
			return machine.Name, s.box(&host)
		}
	}
	Fail("the cluster has no such Machine")
	return "", nil
}

// retry requests a failed upgrade again.
func (w workload) retry(ctx context.Context, machine string) {
	GinkgoHelper()
	kubectl(ctx, "--namespace", w.namespace(), "annotate", "elementalmachine", machine, infrav1.RetryUpgradeAnnotation+"=")
	Eventually(func(g Gomega) {
		infra := &infrav1.ElementalMachine{}
		g.Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: machine}, infra)).To(Succeed())
		g.Expect(infra.Annotations).NotTo(HaveKey(infrav1.RetryUpgradeAnnotation))
	}).WithTimeout(time.Minute).Should(Succeed())
}

// upgradeCondition returns KubernetesUpToDate of a Machine's ElementalMachine, which has the same name.
func (w workload) upgradeCondition(ctx context.Context, g Gomega, machine string) (reason, message string) {
	infra := &infrav1.ElementalMachine{}
	g.Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: machine}, infra)).To(Succeed())
	condition := meta.FindStatusCondition(infra.Status.Conditions, infrav1.KubernetesUpToDateCondition)
	g.Expect(condition).NotTo(BeNil())
	return condition.Reason, condition.Message
}

// expectUpgradeFailed waits until the condition says why the upgrade has failed.
func (w workload) expectUpgradeFailed(ctx context.Context, machine, reason string, parts ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		is, message := w.upgradeCondition(ctx, g, machine)
		g.Expect(is).To(Equal(reason), message)
		for _, part := range parts {
			g.Expect(message).To(ContainSubstring(part))
		}
	}).WithTimeout(2 * upgradeTimeout).WithPolling(2 * time.Second).Should(Succeed())
}

// expectMachineUpgraded waits until the condition says that the Machine has its version.
func (w workload) expectMachineUpgraded(ctx context.Context, machine string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		is, message := w.upgradeCondition(ctx, g, machine)
		g.Expect(is).To(Equal(infrav1.KubernetesUpToDateReason), message)
	}).WithTimeout(upgradeTimeout).WithPolling(2 * time.Second).Should(Succeed())
}

// expectSameNodes checks that all Nodes are there, ready and with the versions of their roles, and that no
// health check has remedied a Machine.
func (w workload) expectSameNodes(ctx context.Context, before map[string]nodeIdentity, controlPlane, worker string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(w.client(ctx).List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(len(before)))
		for _, node := range nodes.Items {
			g.Expect(node.UID).To(Equal(before[node.Name].uid), "Node %s", node.Name)
			g.Expect(ready(&node)).To(BeTrue(), "Node %s", node.Name)
			version := worker
			if _, is := node.Labels["node-role.kubernetes.io/control-plane"]; is {
				version = controlPlane
			}
			g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal(version), "Node %s", node.Name)
		}
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	machines := &clusterv1.MachineList{}
	Expect(management.List(ctx, machines, w.inCluster()...)).To(Succeed())
	Expect(machines.Items).To(HaveLen(len(before)))
	remediations := &infrav1.ElementalRemediationList{}
	Expect(management.List(ctx, remediations, client.InNamespace(w.namespace()))).To(Succeed())
	Expect(remediations.Items).To(BeEmpty())
}
