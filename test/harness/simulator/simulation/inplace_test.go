//go:build simulator

package simulation_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
)

// Cluster API upgrades a cluster that has all hosts there are: each stays what it is. Then hosts lose their power,
// fail, and leave in the midst of an upgrade.
func TestInPlaceUpgrade(t *testing.T) {
	u := newUpgradable(t, 3, 2)
	before, seen := u.identities(), u.observe()
	u.step("nothing was replaced while Cluster API did not ask, and Events say so", func() {
		u.release(newer)
		u.offer(false)
		u.bump(newer)
		u.awaitRefusals()
	})
	u.Expect(u.identities()).To(Equal(before))
	u.step("upgraded 3 control planes, then 2 workers, in place", func() {
		u.offer(true)
		u.awaitUpgrade(newer)
	})
	u.Expect(u.identities()).To(Equal(before))
	seen.expectInPlace(u)
	u.Expect(u.roles()).To(Equal([]protocol.UpgradeRole{
		protocol.UpgradeFirstControlPlane, protocol.UpgradeControlPlane, protocol.UpgradeControlPlane, protocol.UpgradeWorker, protocol.UpgradeWorker,
	}), "each began once; the simulated kubeadm refuses a host out of turn")
	u.expectNoResets()

	u.interrupted()
}

// The only host of a cluster is upgraded, without help. The first attempt fails, and is repeated on request. Then a second
// extension is in the way for a while. At last a person does it by hand.
func TestInPlaceUpgradeOfOneHost(t *testing.T) {
	u := newUpgradable(t, 1, 0)
	before, seen := u.identities(), u.observe()
	only := u.Fleet.Hosts()[0]
	u.fail(only)
	u.step("an upgrade was rolled back, and says so", func() {
		u.release(newer)
		u.bump(newer)
		u.rolledBack(only)
	})
	u.step("upgraded the only host, after another attempt", func() {
		u.retry(only)
		u.awaitUpgrade(newer)
	})
	u.release(newest)
	release := u.hold(only)
	defer release()
	u.step("a second extension blocks an update, which replaces nothing", func() {
		second := u.secondExtension()
		u.bump(newest)
		u.Eventually(func() *metav1.Condition {
			return meta.FindStatusCondition(u.machineOf(only).Status.Conditions, clusterv1.MachineUpdatingCondition)
		}).Should(HaveField("Reason", clusterv1.MachineInPlaceUpdateFailedReason))
		u.Expect(u.Admin.Delete(t.Context(), second)).To(Succeed())
	})
	u.step("upgraded the only host again, at the first attempt", func() {
		release()
		u.awaitUpgrade(newest)
	})
	u.step("upgraded the only host by hand, without the help of the provider", func() {
		u.release(last)
		u.bumpByHand(only, last)
		u.awaitUpgrade(last)
	})
	u.Expect(u.identities()).To(Equal(before))
	seen.expectInPlace(u)
	u.Expect(u.roles()).To(HaveLen(4))
	u.Expect(u.roles()).To(HaveEach(protocol.UpgradeFirstControlPlane))
	u.expectNoResets()
}

// awaitRefusals waits until Cluster API has tried to replace a Machine of the control plane and one of the workers.
func (u *upgradable) awaitRefusals() {
	u.t.Helper()
	u.Eventually(func(g Gomega) {
		refused := map[bool]bool{}
		events := &eventsv1.EventList{}
		g.Expect(u.Admin.List(u.t.Context(), events, client.InNamespace(simulation.Namespace))).To(Succeed())
		for _, event := range events.Items {
			if event.Reason == infrav1.ReplacementRefusedReason {
				machine := &clusterv1.Machine{}
				g.Expect(u.Admin.Get(u.t.Context(), client.ObjectKey{Namespace: event.Namespace, Name: event.Regarding.Name}, machine)).To(Succeed())
				_, isControlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
				refused[isControlPlane] = true
			}
		}
		g.Expect(refused).To(HaveLen(2))
	}).Should(Succeed())
}

// bumpByHand changes the version of a cluster of one host as docs/upgrading.md says, with the mode Off: the provider
// neither marks the Machine nor refuses a second one.
func (u *upgradable) bumpByHand(only *fleet.Host, version string) {
	u.t.Helper()
	annotate := func(object client.Object, key string, set bool) {
		before := object.DeepCopyObject().(client.Object)
		if set {
			annotations.AddAnnotations(object, map[string]string{key: ""})
		} else {
			kept := object.GetAnnotations()
			delete(kept, key)
			object.SetAnnotations(kept)
		}
		u.Expect(u.Admin.Patch(u.t.Context(), object, client.MergeFrom(before))).To(Succeed())
	}
	infra := &infrav1.ElementalCluster{}
	u.Expect(u.Admin.Get(u.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: name}, infra)).To(Succeed())
	infra.Spec.InPlace.Mode = infrav1.InPlaceOff
	u.Expect(u.Admin.Update(u.t.Context(), infra)).To(Succeed())
	annotate(u.controlPlane(), clusterv1.PausedAnnotation, true)
	u.Eventually(func() bool {
		return meta.IsStatusConditionTrue(u.controlPlane().Status.Conditions, clusterv1.PausedCondition)
	}).Should(BeTrue())
	annotate(u.machineOf(only), clusterv1.UpdateInProgressAnnotation, true)
	u.bump(version)
	annotate(u.controlPlane(), clusterv1.PausedAnnotation, false)
}

// secondExtension registers the manager's hooks again, as if another provider had some.
func (u *upgradable) secondExtension() *unstructured.Unstructured {
	u.t.Helper()
	first := &unstructured.Unstructured{}
	first.SetAPIVersion(runtimev1.GroupVersion.String())
	first.SetKind("ExtensionConfig")
	u.Expect(u.Admin.Get(u.t.Context(), client.ObjectKey{Name: "elemental-in-place"}, first)).To(Succeed())
	second := &unstructured.Unstructured{Object: map[string]any{"spec": first.Object["spec"]}}
	second.SetGroupVersionKind(first.GroupVersionKind())
	second.SetName("second")
	u.Expect(u.Admin.Create(u.t.Context(), second)).To(Succeed())
	return second
}

func (u *upgradable) expectNoResets() {
	u.t.Helper()
	for _, h := range u.Fleet.Hosts() {
		u.Expect(h.Status().Done.Resets).To(BeZero(), h.Name)
	}
}

func (u *upgradable) hasFailed(h *fleet.Host) bool {
	u.t.Helper()
	return strings.HasPrefix(conditionOf(u.infraOn(h)), infrav1.UpgradeRolledBackReason)
}

// rolledBack waits until the failure of a host's upgrade is known.
func (u *upgradable) rolledBack(h *fleet.Host) {
	u.t.Helper()
	u.Eventually(func() string { return conditionOf(u.infraOn(h)) }).Should(And(
		HavePrefix(infrav1.UpgradeRolledBackReason), ContainSubstring("rolled back: the kubelet did not start"), ContainSubstring(infrav1.RetryUpgradeAnnotation)))
}

// retry has a host's upgrade repeated.
func (u *upgradable) retry(h *fleet.Host) {
	u.t.Helper()
	infra := u.infraOn(h)
	old := infra.DeepCopy()
	infra.Annotations[infrav1.RetryUpgradeAnnotation] = ""
	u.Expect(u.Admin.Patch(u.t.Context(), infra, client.MergeFrom(old))).To(Succeed())
}

// interrupted upgrades a cluster again. The manager is away at first; then a host of the control plane loses its power. Of
// the workers, one fails at first, and the Machine of the other is deleted.
func (u *upgradable) interrupted() {
	control, workers := u.hostsOf(true), u.hostsOf(false)
	seen := u.observe()
	// Without the endpoint nobody would see that the Node is not ready.
	_, endpoint := u.endpoint()
	powerless, failing, leaving := control[0], workers[0], workers[1]
	if powerless == endpoint {
		powerless = control[1]
	}
	u.createHealthChecks()
	release := u.hold(powerless)
	u.fail(failing)
	releaseLeaving := u.hold(leaving)
	defer releaseLeaving()
	u.step("Cluster API asked for the upgrade while the manager was away, and did nothing else", u.bumpUnanswered)
	u.step("a host lost its power in the midst of an upgrade, and says so", func() {
		u.Eventually(func() bool { return u.isWaiting(powerless) }).Should(BeTrue())
		powerless.PowerOff()
		u.Eventually(func() string { return conditionOf(u.infraOn(powerless)) }).Should(HavePrefix(infrav1.UpgradeHostNotConnectedReason))
	})
	u.step("MachineHealthChecks left its Machine alone", func() { u.awaitUnhealthy(powerless) })
	u.step("it went on when the power was back", func() {
		release()
		powerless.PowerOn()
		u.Eventually(func() string { return conditionOf(u.infraOn(powerless)) }).Should(HavePrefix(infrav1.KubernetesUpToDateReason))
	})
	u.workersInterrupted(failing, leaving, seen)
}

// awaitUnhealthy waits until the Node of a host has not been ready for twice as long as MachineHealthChecks wait.
func (u *upgradable) awaitUnhealthy(h *fleet.Host) {
	u.t.Helper()
	machine := u.machineOf(h)
	u.Eventually(func(g Gomega) {
		nodes, err := u.Nodes(u.t.Context(), name)
		g.Expect(err).NotTo(HaveOccurred())
		i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return node.Name == machine.Status.NodeRef.Name })
		j := slices.IndexFunc(nodes[i].Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		ready := nodes[i].Status.Conditions[j]
		g.Expect(ready.Status).NotTo(Equal(corev1.ConditionTrue))
		g.Expect(time.Since(ready.LastTransitionTime.Time)).To(BeNumerically(">", 20*time.Second))
	}).Should(Succeed())
	remediations := &infrav1.ElementalRemediationList{}
	u.Expect(u.Admin.List(u.t.Context(), remediations, client.InNamespace(simulation.Namespace))).To(Succeed())
	u.Expect(remediations.Items).To(BeEmpty())
}

// bumpUnanswered changes the version while nobody answers Cluster API's hooks.
func (u *upgradable) bumpUnanswered() {
	u.t.Helper()
	u.release(newest)
	manager := u.Management.Managers()[0]
	manager.Kill()
	u.bump(newest)
	u.Eventually(func(g Gomega) {
		kcp := u.controlPlane()
		rolling := meta.FindStatusCondition(kcp.Status.Conditions, controlplanev1.KubeadmControlPlaneRollingOutCondition)
		g.Expect(rolling).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("ObservedGeneration", kcp.Generation)))
	}).Should(Succeed())
	u.Expect(manager.Start(u.t.Context())).To(Succeed())
}

// workersInterrupted ends the upgrade of the workers, of which one is updated at a time, in any order.
func (u *upgradable) workersInterrupted(failing, leaving *fleet.Host, seen *observer) {
	u.t.Helper()
	deleted := u.machineOf(leaving)
	retried, removed := false, false
	u.step("a worker failed and was repeated, another one's Machine was deleted in the midst, and the host reset", func() {
		u.Eventually(func(g Gomega) {
			if !retried && !removed {
				seen.expectInPlace(g)
			}
			if !removed && u.isWaiting(leaving) {
				u.Expect(u.Admin.Delete(u.t.Context(), deleted)).To(Succeed())
				removed = true
			}
			if !retried && u.hasFailed(failing) {
				u.rolledBack(failing)
				u.retry(failing)
				retried = true
			}
			g.Expect(retried && removed).To(BeTrue())
		}).Should(Succeed())
		u.Eventually(func() error {
			return u.Admin.Get(u.t.Context(), client.ObjectKeyFromObject(deleted), &clusterv1.Machine{})
		}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
	u.step("all has the version; the host that was reset is a node again", func() {
		u.awaitUpgrade(newest)
	})
	for _, h := range u.Fleet.Hosts() {
		resets := 0
		if h == leaving {
			resets = 1
		}
		u.Expect(h.Status().Done.Resets).To(Equal(resets), h.Name)
	}
}
