//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// agentAPICA is the Secret with the CA of the agent API.
const agentAPICA = "elemental-agent-api-ca"

var _ = Describe("Hosts that clusterctl moves", Ordered, Label("move"), func() {
	w := workload{lab.Cluster{Name: "move", ControlPlanes: 1, Workers: 5}}
	var first, second *lab.Lab
	var held, offline, fenced, releasing movedHost
	// before has the start times of kubelets, bootIDs the boots of hosts that are not reset.
	var before, bootIDs map[string]string
	var ended time.Time

	BeforeAll(func(ctx context.Context) {
		Expect(hosts.Hosts()).To(HaveLen(requiredHosts), "these specs need LAB_HOSTS=%d", requiredHosts)
		first, second = hosts, hosts.Second()
		DeferCleanup(func() { manage(first) })
		step("move: second management cluster", func() { Expect(second.Up(ctx)).To(Succeed()) })
		step("move: 1+5 running, one host free", func() {
			w.createWithShortTimeouts(ctx)
			w.expectRunning(ctx, 6)
		})
	}, NodeTimeout(40*time.Minute))

	It("stay where they are while one of them waits for its bootstrap", func(ctx context.Context) {
		box, host := freeHost(ctx)
		shell(ctx, box, "systemctl stop elemental-agent")
		w.scale(ctx, 6)
		Eventually(func() *infrav1.HostClaim { return hostOf(ctx, box).Spec.Claim }).WithTimeout(time.Minute).ShouldNot(BeNil())
		_, err := clusterctlMove(ctx, second)
		Expect(err).To(MatchError(ContainSubstring("still provisioning the node")))
		cluster := &clusterv1.Cluster{}
		Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
		Expect(cluster.Spec.Paused == nil || !*cluster.Spec.Paused).To(BeTrue(), "nothing is paused")
		step("move: claimed host released again", func() {
			markForDeletion(ctx, hostOf(ctx, box).Spec.Claim.MachineName)
			w.scale(ctx, 5)
			Eventually(func() infrav1.ClaimPhase { return hostOf(ctx, box).Spec.Claim.Phase }).
				WithTimeout(time.Minute).Should(Equal(infrav1.ClaimReleasing))
			shell(ctx, box, "systemctl start elemental-agent")
			expectAvailable(ctx, box)
			w.expectRunning(ctx, 6)
		})
		Expect(hostOf(ctx, box).Name).To(Equal(host.Name))
	}, SpecTimeout(20*time.Minute))

	It("move while one is reset, held, fenced, offline, free and in use", func(ctx context.Context) {
		before, bootIDs = w.kubelets(ctx), map[string]string{}
		step("move: all hosts have reached the second management cluster", func() { announceSuccessor(ctx, second) })
		step("move: a host held, one fenced, one offline", func() {
			all := w.workers(ctx)
			held, offline, fenced, releasing = moved(all[0]), moved(all[1]), moved(all[2]), moved(all[3])
			w.hold(ctx, held)
			w.fence(ctx, fenced)
			Expect(offline.box.Disconnect(ctx)).To(Succeed())
		})
		for _, box := range []*engine.Host{held.box, offline.box} {
			var err error
			bootIDs[box.Name], err = box.BootID(ctx)
			Expect(err).NotTo(HaveOccurred())
		}
		step("move: a host is reset", func() {
			// In /run: a reboot removes it.
			shell(ctx, releasing.box, `mkdir -p /run/systemd/system/kubelet.service.d
				printf '[Service]\nExecStop=/bin/sleep 45\nTimeoutStopSec=90\n' >/run/systemd/system/kubelet.service.d/slow.conf
				systemctl daemon-reload`)
			markForDeletion(ctx, releasing.machine)
			w.scale(ctx, 2)
			Eventually(func(g Gomega) {
				g.Expect(hostOf(ctx, releasing.box).Status.Operations).To(ContainElement(And(
					HaveField("Type", infrav1.OperationReset), HaveField("State", infrav1.OperationRunning))))
			}).WithTimeout(resetTimeout).WithPolling(200 * time.Millisecond).Should(Succeed())
		})
		names := w.machines(ctx)
		specs := map[string]infrav1.ElementalHostSpec{}
		for _, host := range elementalHosts(ctx) {
			specs[host.Name] = host.Spec
		}
		step("move: clusterctl move", func() {
			out, err := clusterctlMove(ctx, second)
			Expect(err).NotTo(HaveOccurred(), out)
			ended = time.Now()
		})
		Expect(elementalHosts(ctx)).To(BeEmpty(), "the first management cluster has no hosts")

		manage(second)
		for _, host := range elementalHosts(ctx) {
			was := specs[host.Name]
			Expect(host.Spec.Claim == nil).To(Equal(was.Claim == nil), host.Name)
			if was.Claim != nil {
				Expect(host.Spec.Claim.ID).To(Equal(was.Claim.ID), host.Name)
			}
		}
		for _, name := range w.machines(ctx) {
			Expect(names).To(ContainElement(name), "no Machine is new")
		}
	}, SpecTimeout(30*time.Minute))

	It("are managed from the other management cluster", func(ctx context.Context) {
		step("move: agents have followed", func() {
			for _, box := range hosts.Hosts() {
				if box.Name != offline.box.Name && box.Name != fenced.box.Name {
					expectConnected(ctx, box)
				}
			}
			Expect(time.Since(ended)).To(BeNumerically("<", time.Minute), "all are connected within a minute of the move")
		})
		step("move: the host that was being reset is available, its Machine gone", func() {
			w.expectMachineDeleted(ctx, releasing.machine)
			expectAvailable(ctx, releasing.box)
		})
		step("move: the offline host returns as the same Node", func() {
			Expect(offline.box.Connect(ctx)).To(Succeed())
			expectConnected(ctx, offline.box)
		})
		step("move: 1+2 running", func() { w.expectRunning(ctx, 3) })
		step("move: the fenced host is reset when it returns", func() {
			Expect(fenced.box.Start(ctx)).To(Succeed())
			Eventually(func(g Gomega) {
				host := &infrav1.ElementalHost{}
				g.Expect(management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: fenced.host}, host)).To(Succeed())
				g.Expect(host.Spec.Claim).To(BeNil())
				available := meta.FindStatusCondition(host.Status.Conditions, infrav1.AvailableCondition)
				g.Expect(available).To(HaveValue(HaveField("Reason", infrav1.FencedReason)))
			}).WithTimeout(resetTimeout).Should(Succeed())
			// Its kubelet may have registered once more before the reset, as docs/operating.md says.
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fenced.host}}
			Expect(client.IgnoreNotFound(w.client(ctx).Delete(ctx, node))).To(Succeed())
		})
		Expect(hostOf(ctx, held.box).Spec.Claim).To(HaveValue(HaveField("Phase", infrav1.ClaimHeld)))
		shell(ctx, held.box, "test -e /etc/kubernetes/kubelet.conf")
		for _, box := range []*engine.Host{held.box, offline.box} {
			id, err := box.BootID(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(id).To(Equal(bootIDs[box.Name]), "%s was not reset", box.Name)
		}
		for name, started := range w.kubelets(ctx) {
			Expect(started).To(Equal(before[name]), "the kubelet of %s was not restarted", name)
		}
		Expect(w.machines(ctx)).To(HaveLen(3), "no second Machine was lost")
		Expect(hostCount(ctx)).To(Equal(requiredHosts))
	}, SpecTimeout(30*time.Minute))

	It("move back, and are released there", func(ctx context.Context) {
		step("move: held host released, fence removed", func() {
			patch(ctx, hostOf(ctx, held.box), `{"spec":{"claim":{"phase":"Releasing"}}}`)
			patch(ctx, hostOf(ctx, fenced.box), `{"spec":{"fence":null}}`)
			expectAvailable(ctx, held.box)
			expectAvailable(ctx, fenced.box)
		})
		step("move: all hosts have reached the first management cluster", func() { announceSuccessor(ctx, first) })
		step("move: clusterctl move back", func() {
			out, err := clusterctlMove(ctx, first)
			Expect(err).NotTo(HaveOccurred(), out)
			ended = time.Now()
		})
		manage(first)
		step("move: agents have followed back, 1+2 running", func() {
			expectConnected(ctx, hosts.Hosts()...)
			Expect(time.Since(ended)).To(BeNumerically("<", time.Minute), "all are connected within a minute of the move")
			w.expectRunning(ctx, 3)
		})
		step("move: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(30*time.Minute))
})

// movedHost is a worker whose host is in a certain state during a move. host and machine are names
// of objects.
type movedHost struct {
	host, machine string
	box           *engine.Host
}

func moved(u unhealthyWorker) movedHost { return movedHost{u.host, u.machine.Name, u.box} }

// manage makes all helpers use the management cluster of a lab.
func manage(l *lab.Lab) {
	GinkgoHelper()
	hosts, management = l, patientClient{clientFor(l.Kubeconfig())}
}

// clusterctlMove moves everything in the namespace to the management cluster of another lab.
func clusterctlMove(ctx context.Context, to *lab.Lab) (string, error) {
	return hosts.Clusterctl(ctx, "move", "--to-kubeconfig", to.Kubeconfig(), "--namespace", namespace, "-v", "3")
}

// announceSuccessor names the management cluster of another lab to all hosts, as docs/operating.md says, and waits
// until they have reached it.
func announceSuccessor(ctx context.Context, next *lab.Lab) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: managerDeployment(ctx).Namespace, Name: agentAPICA}
	Expect(clientFor(next.Kubeconfig()).Get(ctx, key, secret)).To(Succeed())
	change, err := json.Marshal(map[string]any{"spec": map[string]any{"successor": infrav1.RegistrationSuccessor{
		URLs: []string{next.AgentAPI()}, TrustBundle: string(secret.Data["ca.crt"]),
	}}})
	Expect(err).NotTo(HaveOccurred())
	kubectl(ctx, "--namespace", namespace, "patch", "elementalregistration", "lab", "--type", "merge", "--patch", string(change))
	kubectl(ctx, "--namespace", namespace, "wait", "elementalregistration", "lab", "--for", "condition=SuccessorReached", "--timeout", "2m")
}

// hold removes a worker whose host is held.
func (w workload) hold(ctx context.Context, host movedHost) {
	GinkgoHelper()
	kubectl(ctx, "--namespace", namespace, "patch", "elementalmachine", host.machine, "--type", "merge",
		"--patch", `{"spec":{"release":{"policy":"Hold"}}}`)
	markForDeletion(ctx, host.machine)
	w.scale(ctx, 4)
	w.expectMachineDeleted(ctx, host.machine)
	Expect(hostOf(ctx, host.box).Spec.Claim).To(HaveValue(HaveField("Phase", infrav1.ClaimHeld)))
}

// fence turns a worker's host off and removes the worker.
func (w workload) fence(ctx context.Context, host movedHost) {
	GinkgoHelper()
	Expect(host.box.Kill(ctx)).To(Succeed())
	markForDeletion(ctx, host.machine)
	w.scale(ctx, 3)
	patch(ctx, hostOf(ctx, host.box), `{"spec":{"fence":{"reason":"dead"}}}`)
	w.expectMachineDeleted(ctx, host.machine)
	Expect(hostOf(ctx, host.box).Spec.Claim).To(HaveValue(HaveField("Phase", infrav1.ClaimReleasing)))
}
