//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// finishStep is the last step of an upgrade.
const finishStep = "finish"

// cuts are the steps of an upgrade in which the hosts of a cluster lose power, each once.
type cuts struct {
	controlPlanes, workers []string
}

// allCuts cut the power of a control plane and of a worker in each step.
func allCuts() []cuts {
	return []cuts{
		{controlPlanes: []string{"stage", "check", "checkpoint"}, workers: []string{"stage", "check"}},
		{controlPlanes: []string{"kubeadm", "drain", "kubelet"}, workers: []string{"checkpoint", "kubeadm"}},
		{controlPlanes: []string{"gate", finishStep, "kubeadm"}, workers: []string{"drain", "kubelet"}},
		{controlPlanes: []string{"kubelet"}, workers: []string{"gate", finishStep}},
	}
}

var _ = Describe("An upgrade in place whose hosts lose power", Ordered, ContinueOnFailure, Label("upgrade-cuts"), func() {
	var site *bareSite

	BeforeAll(func(ctx context.Context) { site = startBareSite(ctx, bareHosts) }, NodeTimeout(60*time.Minute))

	It("goes on after the first steps", func(ctx context.Context) {
		site.upgradeWithCuts(ctx, "first", allCuts()[0])
	}, SpecTimeout(75*time.Minute))

	It("goes on after the steps that change the Node", func(ctx context.Context) {
		site.upgradeWithCuts(ctx, "middle", allCuts()[1])
	}, SpecTimeout(75*time.Minute))

	It("goes on after the last steps of control planes", func(ctx context.Context) {
		site.upgradeWithCuts(ctx, "last", allCuts()[2])
	}, SpecTimeout(75*time.Minute))

	It("goes on after the last steps of workers, and on the only control plane", func(ctx context.Context) {
		site.upgradeWithCuts(ctx, "only", allCuts()[3])
	}, SpecTimeout(75*time.Minute))
})

// upgradeWithCuts upgrades a cluster whose hosts lose power, and checks that nothing is lost.
func (s *bareSite) upgradeWithCuts(ctx context.Context, name string, at cuts) {
	GinkgoHelper()
	w := s.workload(name, len(at.controlPlanes), len(at.workers))
	step(fmt.Sprintf("%s: %d+%d running", name, w.ControlPlanes, w.Workers), func() {
		w.createInPlace(ctx)
		w.expectRunning(ctx, w.ControlPlanes+w.Workers)
	})
	before := w.nodes(ctx)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}}
	Expect(w.client(ctx).Create(ctx, kept)).To(Succeed())

	// The cuts end with the upgrade: one that was too late fails.
	upgrading, end := context.WithCancel(ctx)
	var cutting sync.WaitGroup
	DeferCleanup(func() {
		end()
		cutting.Wait()
	})
	controlPlanes, workers := s.byRole(ctx, w)
	for i, v := range controlPlanes {
		w.prolong(ctx, v, at.controlPlanes[i])
		cutting.Go(func() {
			defer GinkgoRecover()
			w.cutPower(upgrading, v, at.controlPlanes[i])
			expectManifests(upgrading, v.box)
		})
	}
	for i, v := range workers {
		w.prolong(ctx, v, at.workers[i])
		cutting.Go(func() {
			defer GinkgoRecover()
			w.cutPower(upgrading, v, at.workers[i])
		})
	}
	step(fmt.Sprintf("%s: upgraded to %s", name, s.current.Version), func() {
		w.bump(ctx, s.current.Version)
		w.expectUpgraded(ctx, before, s.current.Version)
	})
	end()
	cutting.Wait()
	Expect(w.client(ctx).Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
	w.expectNoReset(ctx)
	step(name+": cluster deleted", func() {
		w.delete(ctx)
		s.expectAvailable(ctx)
	})
}

// victim is a lab host that loses power, and the name of its Node.
type victim struct {
	box  *engine.Host
	node string
}

// byRole returns the lab hosts of a cluster's control plane and of its workers.
func (s *bareSite) byRole(ctx context.Context, w workload) (controlPlanes, workers []victim) {
	GinkgoHelper()
	for _, host := range w.claimedHosts(ctx) {
		machine := &clusterv1.Machine{}
		Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: host.Spec.Claim.MachineName}, machine)).To(Succeed())
		v := victim{box: s.box(&host), node: machine.Status.NodeRef.Name}
		if _, ok := machine.Labels[clusterv1.MachineControlPlaneLabel]; ok {
			controlPlanes = append(controlPlanes, v)
		} else {
			workers = append(workers, v)
		}
	}
	return controlPlanes, workers
}

// prolong has the step finish last until the power is cut: on a worker it takes some milliseconds, less
// than anybody needs to see it and to cut the power. The cluster's API server refuses meanwhile that the
// Node becomes schedulable, and the agent repeats the step. Other steps last long enough.
func (w workload) prolong(ctx context.Context, v victim, step string) {
	GinkgoHelper()
	if step != finishStep {
		return
	}
	name := cordonedPolicy(v)
	Expect(w.client(ctx).Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				ResourceNames: []string{v.node},
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "!oldObject.spec.?unschedulable.orValue(false) || object.spec.?unschedulable.orValue(false)",
				Message:    "the Node stays unschedulable until its host has lost power",
			}},
		},
	})).To(Succeed())
	Expect(w.client(ctx).Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})).To(Succeed())
}

// cordonedPolicy is the name of the policy that keeps a Node unschedulable.
func cordonedPolicy(v victim) string { return "cordoned-" + v.node }

// stopAtStep waits until the host's upgrade is at a step or a later one, stops the agent, so that the
// step still lasts when the power is cut, and prints the step. Until the first step is done, only the
// list of operations has the upgrade. While it waits it starts no processes, which would slow the host
// down. In the step kubeadm, it waits until kubeadm replaces static Pods.
const stopAtStep = `
declare -A order=([none]=0 [stage]=1 [check]=2 [checkpoint]=3 [kubeadm]=4 [drain]=5 [kubelet]=6 [gate]=7 [finish]=8 [rollback]=9)
cd /var/lib/elemental/agent
agent=$(systemctl show --property MainPID --value elemental-agent)
exec {never}<> <(:)
step=none
while ((order[$step] < order[$1])); do
	read -rt 0.02 -u "$never"
	mapfile -d '' -t operations <operations.json
	[[ ${operations[0]##*\"type\"} != *NodeUpgrade*Running* ]] || step=stage
	for record in operations/nodeupgrade-*/nodeupgrade.json; do
		[[ ! -e $record ]] || { read -r && read -r _ step; } <"$record"
	done
	step=${step//[\",]/}
done
if [[ $step == kubeadm && -e /etc/kubernetes/manifests/etcd.yaml ]]; then
	until compgen -G '/etc/kubernetes/tmp/kubeadm-backup-etcd*' >/dev/null; do
		read -rt 0.02 -u "$never"
	done
fi
kill -STOP "$agent"
echo "$step"
`

// cutPower cuts a host's power in a step of its upgrade, and starts it again.
func (w workload) cutPower(ctx context.Context, v victim, step string) {
	GinkgoHelper()
	found, err := v.box.Exec(ctx, "bash", "-c", stopAtStep, "bash", step)
	Expect(err).NotTo(HaveOccurred(), "host %s was to lose power at step %s", v.box.Name, step)
	Expect(v.box.Kill(ctx)).To(Succeed())
	fmt.Printf("%s  host %s lost power at step %s\n", time.Now().Format(time.TimeOnly), v.box.Name, found)
	Expect(strings.TrimSpace(found)).To(Equal(step), "host %s", v.box.Name)
	Expect(v.box.Start(ctx)).To(Succeed())
	Expect(v.box.WaitBooted(ctx)).To(Succeed())
	if step == finishStep {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: cordonedPolicy(v)}}
		Eventually(func() error { return w.client(ctx).Delete(ctx, policy) }).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Succeed())
	}
}

// expectManifests waits until a control plane that has lost power has all manifests of static Pods.
// kubeadm moves each of them away for a moment.
func expectManifests(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := box.Exec(ctx, "sh", "-c", "cd /etc/kubernetes/manifests && test -s etcd.yaml -a -s kube-apiserver.yaml -a "+
			"-s kube-controller-manager.yaml -a -s kube-scheduler.yaml")
		return err
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed(), "host %s", box.Name)
}
