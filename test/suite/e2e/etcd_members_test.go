//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/objectstore"
)

const (
	// servedAgain is within what time after the confirmation the API server serves again.
	servedAgain = 5 * time.Minute
	// replaced bounds the replacement of two control planes, each by a reset and a join.
	replaced = 40 * time.Minute
	counter  = "counter"
	// snapshotInterval is the shortest interval of snapshots, in seconds.
	snapshotInterval int32 = 300
	// hostSnapshots is the folder of snapshots on a host.
	hostSnapshots = agentState + "/etcd-snapshots"
)

// loseKubernetes removes the data of Kubernetes and etcd. The agent and its key stay.
const loseKubernetes = "systemctl stop kubelet; pkill -KILL -x etcd; pkill -KILL -x kube-apiserver; rm -rf /etc/kubernetes /var/lib/etcd/* " +
	"/var/lib/kubelet/pki /var/lib/kubelet/*.yaml /var/lib/kubelet/*.env; sync"

// loseEverything removes the data of Kubernetes and etcd from the hosts, cuts their power and starts them again.
func loseEverything(ctx context.Context, hosts ...infrav1.ElementalHost) {
	GinkgoHelper()
	for _, host := range hosts {
		box := boxOf(&host)
		shell(ctx, box, loseKubernetes)
		Expect(box.Kill(ctx)).To(Succeed())
	}
	for _, host := range hosts {
		box := boxOf(&host)
		Expect(box.Start(ctx)).To(Succeed())
		Expect(box.WaitBooted(ctx)).To(Succeed())
	}
	for _, host := range hosts {
		expectConnected(ctx, boxOf(&host))
	}
}

var _ = Describe("etcd of a cluster with three control-plane hosts", Ordered, Label("etcd-members"), func() {
	w := workload{lab.Cluster{Name: "members", ControlPlanes: 3, Workers: 2}}
	var store objectstore.Store

	// What a BeforeAll starts runs until the last spec.
	BeforeAll(func() { store = objectstore.Listen(GinkgoTB(), hosts.MachineAddress()) })

	It("goes on with the data of the member that is left", func(ctx context.Context) {
		step("members: 3+2 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 5)
		})
		w.expectProbed(ctx, 3)
		last := w.count(ctx)
		survivor, lost := w.survivor(ctx)
		machines := w.controlPlaneMachines(ctx)
		step("members: two control-plane hosts have lost everything", func() { loseEverything(ctx, lost...) })
		source := infrav1.EtcdRestoreSource{Survivor: &infrav1.EtcdRestoreSurvivor{HostName: survivor.Name}}
		planned := w.planRestore(ctx, "survivor", source, false)
		began := time.Now()
		step("members: etcd restored", func() { w.confirmRestore(ctx, planned) })
		w.expectServed(ctx, began)
		step("members: control plane replaced", func() { w.expectReplaced(ctx, machines[survivor.Spec.Claim.MachineName]) })
		Expect(w.counted(ctx)).To(BeNumerically(">=", last), "the counter was lost")
		Expect(w.endpoint(ctx).host).To(Equal(survivor.Name))
	}, SpecTimeout(100*time.Minute))

	It("goes back to before a mistake", func(ctx context.Context) {
		var host infrav1.ElementalHost
		var snapshot infrav1.HostEtcdSnapshot
		step("members: first snapshot taken", func() { host, snapshot = w.takeAnySnapshot(ctx) })
		w.remember(ctx, "mistake")
		machines := w.controlPlaneMachines(ctx)
		planned := w.planRestore(ctx, "mistake", snapshotOn(host.Name, snapshot.ID), true)
		began := time.Now()
		step("members: back to before a mistake", func() { w.confirmRestore(ctx, planned) })
		w.expectServed(ctx, began)
		step("members: control plane replaced once more", func() { w.expectReplaced(ctx, machines[host.Spec.Claim.MachineName]) })
		err := w.client(ctx).Get(ctx, client.ObjectKey{Namespace: namespace, Name: "mistake"}, &corev1.ConfigMap{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(80*time.Minute))

	It("comes back from S3 after all control-plane hosts have lost everything, snapshots too", func(ctx context.Context) {
		last := w.count(ctx)
		var snapshot infrav1.UploadedEtcdSnapshot
		step("members: another snapshot uploaded", func() {
			snapshot = w.uploadSnapshots(ctx, store, infrav1.EtcdSnapshotSchedule{IntervalSeconds: new(snapshotInterval)}, time.Now())
		})
		w.count(ctx)
		machines := w.controlPlaneMachines(ctx)
		var lost []infrav1.ElementalHost
		for _, h := range w.claimed(ctx) {
			if h.Spec.Claim.Role.IsControlPlane() {
				lost = append(lost, h)
			}
		}
		Expect(lost).To(HaveLen(3))
		step("members: all control-plane hosts have lost everything", func() {
			for _, h := range lost {
				shell(ctx, boxOf(&h), "systemctl stop elemental-agent && rm -r "+hostSnapshots)
			}
			loseEverything(ctx, lost...)
		})
		Expect(time.Since(scheduledAt(snapshot))).To(BeNumerically("<", time.Duration(snapshotInterval)*time.Second), "less than one interval is lost")
		host := lost[0]
		planned := w.planRebuild(ctx, "everything", infrav1.EtcdRestoreSource{Uploaded: &infrav1.EtcdRestoreUpload{
			HostName: snapshot.HostName, ID: snapshot.ID, RestoreOn: host.Name, IdentityRef: infrav1.EtcdRestoreIdentityReference{Name: w.Name + "-identity"},
		}})
		began := time.Now()
		step("members: control plane set up again, etcd restored", func() { w.confirmRestore(ctx, planned) })
		w.expectServed(ctx, began)
		step("members: control plane replaced after the loss of everything", func() { w.expectReplaced(ctx, machines[host.Spec.Claim.MachineName]) })
		Expect(w.counted(ctx)).To(BeNumerically(">=", last), "the counter was lost")
		Expect(w.endpoint(ctx).host).To(Equal(host.Name))
	}, SpecTimeout(100*time.Minute))

	It("is deleted afterwards", func(ctx context.Context) {
		step("members: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))
})

// count writes a counter into the cluster for ten seconds, and returns the last value that was acknowledged a second
// before it returns: a follower knows by then that it was committed.
func (w workload) count(ctx context.Context) (last int) {
	GinkgoHelper()
	c := w.client(ctx)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: counter}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); apierrors.IsNotFound(err) {
		w.remember(ctx, counter)
	}
	Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
	last, _ = strconv.Atoi(object.Data[counter]) // 0 in a new object
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		object.Data = map[string]string{counter: strconv.Itoa(last + 1)}
		Expect(c.Update(ctx, object)).To(Succeed())
		last++
	}
	Consistently(func() error { return c.Get(ctx, client.ObjectKeyFromObject(object), object) }).WithTimeout(time.Second).Should(Succeed())
	fmt.Printf("  counted to %d\n", last)
	return last
}

// counted returns the counter.
func (w workload) counted(ctx context.Context) int {
	GinkgoHelper()
	object := &corev1.ConfigMap{}
	Expect(w.client(ctx).Get(ctx, client.ObjectKey{Namespace: namespace, Name: counter}, object)).To(Succeed())
	value, err := strconv.Atoi(object.Data[counter])
	Expect(err).NotTo(HaveOccurred())
	return value
}

// survivor returns a control-plane host that does not have the endpoint, and the others.
func (w workload) survivor(ctx context.Context) (survivor infrav1.ElementalHost, lost []infrav1.ElementalHost) {
	GinkgoHelper()
	endpoint := w.endpoint(ctx).host
	for _, host := range w.claimed(ctx) {
		switch {
		case !host.Spec.Claim.Role.IsControlPlane():
		case survivor.Name == "" && host.Name != endpoint:
			survivor = host
		default:
			lost = append(lost, host)
		}
	}
	Expect(lost).To(HaveLen(2))
	return survivor, lost
}

// controlPlaneMachines returns the UIDs of the control-plane Machines by their names.
func (w workload) controlPlaneMachines(ctx context.Context) map[string]string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, append(w.inCluster(), client.HasLabels{clusterv1.MachineControlPlaneLabel})...)).To(Succeed())
	uids := map[string]string{}
	for _, machine := range list.Items {
		uids[machine.Name] = string(machine.UID)
	}
	return uids
}

// expectServed waits until the API server serves at the cluster's endpoint, and prints how long after the confirmation.
func (w workload) expectServed(ctx context.Context, confirmed time.Time) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := w.ask(ctx, readyPath, requestTimeout)
		return err
	}).WithTimeout(time.Until(confirmed.Add(servedAgain))).Should(Succeed())
	fmt.Printf("  the API server served %.1f s after the confirmation\n", time.Since(confirmed).Seconds())
}

// expectReplaced waits until the cluster runs with one control-plane Machine of before, and two new ones.
func (w workload) expectReplaced(ctx context.Context, kept string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &clusterv1.MachineList{}
		g.Expect(management.List(ctx, list, append(w.inCluster(), client.HasLabels{clusterv1.MachineControlPlaneLabel})...)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(3))
		for _, machine := range list.Items {
			g.Expect(machine.DeletionTimestamp.IsZero()).To(BeTrue(), "Machine %s", machine.Name)
			g.Expect(machine.Status.Phase).To(Equal("Running"), "Machine %s", machine.Name)
		}
		g.Expect(list.Items).To(ContainElement(HaveField("UID", BeEquivalentTo(kept))))
	}).WithTimeout(replaced).Should(Succeed())
	w.expectRunning(ctx, 5)
}

// takeAnySnapshot switches snapshots on, and returns the first one and its host.
func (w workload) takeAnySnapshot(ctx context.Context) (on infrav1.ElementalHost, taken infrav1.HostEtcdSnapshot) {
	GinkgoHelper()
	infra := w.infra(ctx)
	before := infra.DeepCopy()
	infra.Spec.EtcdSnapshots = &infrav1.EtcdSnapshots{}
	Expect(management.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
	Eventually(func() bool {
		for _, host := range w.claimed(ctx) {
			if list := host.Status.EtcdSnapshots; list != nil && len(list.Items) > 0 {
				on, taken = host, list.Items[0]
				return true
			}
		}
		return false
	}).WithTimeout(15 * time.Minute).Should(BeTrue())
	return on, taken
}
