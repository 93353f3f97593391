//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

// restoreTimeout bounds a restore. It is far above the usual time, because a busy machine is not a failure.
const restoreTimeout = 20 * time.Minute

// etcdData is where kubeadm has etcd's data.
const etcdData = "/var/lib/etcd/member"

var _ = Describe("etcd of a cluster with one control-plane host", Ordered, Label("etcd"), func() {
	w := workload{lab.Cluster{Name: "restored", ControlPlanes: 1, Workers: 1}}
	var (
		controlPlane infrav1.ElementalHost
		nodes        map[string]nodeIdentity
		snapshot     infrav1.HostEtcdSnapshot
	)

	It("has snapshots on its host", func(ctx context.Context) {
		step("restored: 1+1 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 2)
		})
		nodes = w.nodes(ctx)
		w.remember(ctx, "before")
		controlPlane = w.controlPlaneHost(ctx)
		step("restored: first snapshot taken", func() { snapshot = w.takeSnapshots(ctx) })
	}, SpecTimeout(25*time.Minute))

	It("goes back to before a mistake", func(ctx context.Context) {
		w.remember(ctx, "mistake")
		calls := w.call(ctx, time.Second)
		step("restored: back to before a mistake", func() {
			w.restore(ctx, "mistake", controlPlane.Name, snapshot.ID, true)
		})
		calls.stop()
		fmt.Printf("  the API was away for %.1f s\n", calls.totalOutage().Seconds())
		w.expectRestored(ctx, nodes, "mistake")
	}, SpecTimeout(restoreTimeout+10*time.Minute))

	It("gets its data back after a disk has damaged it", func(ctx context.Context) {
		w.remember(ctx, "lost")
		shell(ctx, boxOf(&controlPlane), "dd if=/dev/zero of="+etcdData+"/snap/db bs=4096 count=4 conv=notrunc && pkill -KILL -x etcd")
		Eventually(func() error {
			_, err := w.ask(ctx, readyPath, requestTimeout)
			return err
		}).WithTimeout(2*time.Minute).Should(HaveOccurred(), "the API server has no etcd")
		step("restored: data back", func() { w.restore(ctx, "lost", controlPlane.Name, snapshot.ID, false) })
		w.expectRestored(ctx, nodes, "lost")
	}, SpecTimeout(restoreTimeout+10*time.Minute))

	It("comes back after its host has lost all files of Kubernetes and etcd", func(ctx context.Context) {
		w.remember(ctx, "files")
		step("restored: the control-plane host has lost everything", func() { loseEverything(ctx, controlPlane) })
		planned := w.planRebuild(ctx, "files", snapshotOn(controlPlane.Name, snapshot.ID))
		began := time.Now()
		step("restored: control plane set up again, data back", func() { w.confirmRestore(ctx, planned) })
		w.expectServed(ctx, began)
		w.expectRestored(ctx, nodes, "files")
	}, SpecTimeout(restoreTimeout+10*time.Minute))

	It("has the Nodes of its Machines after going back to before these Machines", func(ctx context.Context) {
		former := hostOf(ctx, w.workerBox(ctx))
		setCordon(ctx, former, &infrav1.HostCordon{Reason: "its Machine moves to another host"})
		w.deleteWorker(ctx)
		step("restored: worker replaced", func() { w.expectRunning(ctx, 2) })
		nodes = w.nodes(ctx)
		Expect(nodes).NotTo(HaveKey(former.Name), "these specs need a spare host: LAB_HOSTS=3")
		step("restored: back to before the replacement", func() { w.restore(ctx, "nodes", controlPlane.Name, snapshot.ID, true) })
		w.expectRunning(ctx, 2)
		for name, now := range w.nodes(ctx) {
			Expect(nodes).To(HaveKey(name))
			Expect(now.machine).To(Equal(nodes[name].machine), "the Machine of Node %s", name)
			if name == controlPlane.Name {
				Expect(now.uid).To(Equal(nodes[name].uid))
			} else {
				Expect(now.uid).NotTo(Equal(nodes[name].uid), "the worker %s has registered again", name)
			}
		}
		setCordon(ctx, former, nil)
	}, SpecTimeout(restoreTimeout+25*time.Minute))

	It("is deleted afterwards", func(ctx context.Context) {
		step("restored: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
			leftovers := shell(ctx, boxOf(&controlPlane), "ls -d "+filepath.Dir(etcdData)+"/* /etc/kubernetes*/* 2>/dev/null | grep -v manifests || true")
			Expect(strings.TrimSpace(leftovers)).To(BeEmpty())
		})
	}, SpecTimeout(20*time.Minute))
})

// controlPlaneHost returns the only host of the control plane.
func (w workload) controlPlaneHost(ctx context.Context) infrav1.ElementalHost {
	GinkgoHelper()
	for _, host := range w.claimed(ctx) {
		if host.Spec.Claim.Role.IsControlPlane() {
			return host
		}
	}
	Fail("the cluster has no control-plane host")
	return infrav1.ElementalHost{}
}

// setCordon cordons a host, or with nil ends that.
func setCordon(ctx context.Context, host *infrav1.ElementalHost, cordon *infrav1.HostCordon) {
	GinkgoHelper()
	Expect(management.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
	before := host.DeepCopy()
	host.Spec.Cordon = cordon
	Expect(management.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
}

// deleteWorker deletes the only worker's Machine, and returns when it is gone.
func (w workload) deleteWorker(ctx context.Context) {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, append(w.inCluster(), client.HasLabels{clusterv1.MachineDeploymentNameLabel})...)).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	machine := &list.Items[0]
	Expect(management.Delete(ctx, machine)).To(Succeed())
	Eventually(func() bool {
		return apierrors.IsNotFound(management.Get(ctx, client.ObjectKeyFromObject(machine), &clusterv1.Machine{}))
	}).WithTimeout(resetTimeout).Should(BeTrue(), "Machine %s is deleted", machine.Name)
}

// takeSnapshots switches snapshots on, and returns the first one.
func (w workload) takeSnapshots(ctx context.Context) (first infrav1.HostEtcdSnapshot) {
	GinkgoHelper()
	infra := w.infra(ctx)
	before := infra.DeepCopy()
	infra.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{}
	Expect(management.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
	Eventually(func(g Gomega) {
		host := w.controlPlaneHost(ctx)
		g.Expect(host.Status.EtcdSnapshots).NotTo(BeNil())
		g.Expect(host.Status.EtcdSnapshots.Items).NotTo(BeEmpty())
		first = host.Status.EtcdSnapshots.Items[0]
	}).WithTimeout(5 * time.Minute).Should(Succeed())
	return first
}

// remember writes an object into the cluster.
func (w workload) remember(ctx context.Context, name string) {
	GinkgoHelper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(w.client(ctx).Create(ctx, object)).To(Succeed())
}

// restore restores the cluster's etcd from a snapshot on a host, as the documentation describes it.
func (w workload) restore(ctx context.Context, name, host, snapshot string, replaceHealthy bool) {
	GinkgoHelper()
	w.confirmRestore(ctx, w.planRestore(ctx, name, snapshotOn(host, snapshot), replaceHealthy))
}

// snapshotOn is a snapshot on a host as the source of a restore.
func snapshotOn(host, id string) infrav1.EtcdRestoreSource {
	return infrav1.EtcdRestoreSource{Snapshot: &infrav1.EtcdRestoreSnapshot{HostName: host, ID: id}}
}

// planRestore asks for a restore and waits for its plan.
func (w workload) planRestore(ctx context.Context, name string, source infrav1.EtcdRestoreSource, replaceHealthy bool) *infrav1.ElementalEtcdRestore {
	GinkgoHelper()
	return w.plan(ctx, name, infrav1.ElementalEtcdRestoreSpec{ReplaceHealthy: new(replaceHealthy), Source: source})
}

// planRebuild is planRestore for a host that sets up its control plane again.
func (w workload) planRebuild(ctx context.Context, name string, source infrav1.EtcdRestoreSource) *infrav1.ElementalEtcdRestore {
	GinkgoHelper()
	return w.plan(ctx, name, infrav1.ElementalEtcdRestoreSpec{RebuildControlPlane: new(true), Source: source})
}

func (w workload) plan(ctx context.Context, name string, spec infrav1.ElementalEtcdRestoreSpec) *infrav1.ElementalEtcdRestore {
	GinkgoHelper()
	spec.ClusterName = w.Name
	object := &infrav1.ElementalEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace(), Name: w.Name + "-" + name}, Spec: spec}
	Expect(management.Create(ctx, object)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(management.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		g.Expect(object.Status.Plan).NotTo(BeNil(), "%+v", object.Status.Conditions)
	}).WithTimeout(time.Minute).Should(Succeed())
	return object
}

// confirmRestore confirms a planned restore and waits until the cluster is restored.
func (w workload) confirmRestore(ctx context.Context, object *infrav1.ElementalEtcdRestore) {
	GinkgoHelper()
	before := object.DeepCopy()
	object.Spec.Confirm = w.Name
	Expect(management.Patch(ctx, object, client.MergeFrom(before))).To(Succeed())
	last := ""
	Eventually(func(g Gomega) {
		g.Expect(management.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		condition := findCondition(object.Status.Conditions, infrav1.RestoredCondition)
		if said := condition.Reason + ": " + condition.Message; said != last {
			last = said
			fmt.Printf("%s  %s\n", time.Now().Format(time.TimeOnly), said)
		}
		g.Expect(condition.Status).To(BeEquivalentTo("True"), last)
	}).WithTimeout(restoreTimeout).Should(Succeed())
}

// expectRestored waits until the cluster runs as before, with the same Nodes, without the object
// that was written after the snapshot.
func (w workload) expectRestored(ctx context.Context, nodes map[string]nodeIdentity, lost string) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	Expect(ptr.Deref(cluster.Spec.Paused, false)).To(BeFalse())
	w.expectRunning(ctx, w.ControlPlanes+w.Workers)
	Expect(w.nodes(ctx)).To(Equal(nodes))
	c := w.client(ctx)
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "before"}, &corev1.ConfigMap{})).To(Succeed())
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: lost}, &corev1.ConfigMap{})
	Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
}
