//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	// failoverAfter is the time for which the endpoint must be unreachable before it moves,
	// silentAfter the time after which a disconnected host no longer delays the deletion of its
	// machine.
	failoverAfter = 20 * time.Second
	silentAfter   = 20 * time.Second
	// maxOutage bounds the time from a host's death until Cluster API reaches the cluster again,
	// maxOwnDelay the time from the evidence until the management cluster's objects name another
	// host.
	maxOutage   = 150 * time.Second
	maxOwnDelay = 5 * time.Second
	// maxPlannedOutage bounds the outage of a planned move.
	maxPlannedOutage = 15 * time.Second
	// disconnectedTime is the time for which all agents are disconnected from the manager.
	disconnectedTime = 5 * time.Minute
	// moveTimeout bounds a move, rolloutTimeout the replacement of all control planes.
	moveTimeout    = 10 * time.Minute
	rolloutTimeout = 25 * time.Minute
)

var _ = Describe("An endpoint that is a host's address", Ordered, ContinueOnFailure, Label("endpoint"), func() {
	w := workload{lab.Cluster{Name: "endpoint", ControlPlanes: 3, Workers: 2}}
	var surveyed surveys

	BeforeAll(func(ctx context.Context) {
		Expect(len(hosts.Hosts())).To(BeNumerically(">=", requiredHosts), "these specs need LAB_HOSTS=%d", requiredHosts)
		step("endpoint: disconnect timeout of the manager shortened", func() { shortenDisconnectTimeout(ctx) })
		step("endpoint: hosts surveyed", func() { surveyed = surveyHosts(ctx) })
		step("endpoint: 3+2 running", func() {
			w.createWithShortTimeouts(ctx)
			w.expectRunning(ctx, 5)
		})
		w.applyHealthCheck(ctx, map[string]string{
			"MAX_UNHEALTHY_WORKERS": `"100%"`, "UNHEALTHY_SECONDS": "40", "REBOOTS": "0", "RECOVERY_SECONDS": "20",
		})
		step("endpoint: every control plane probes it", func() { w.expectProbed(ctx, 3) })
	}, NodeTimeout(25*time.Minute))

	It("moves when its host dies without warning", func(ctx context.Context) {
		former := w.endpoint(ctx)
		moves := w.moves(ctx)
		caller := w.call(ctx, time.Second)
		died := time.Now()
		// A dead host is never released, which later specs would wait for.
		DeferCleanup(func(ctx context.Context) error { return former.box.Start(ctx) })
		Expect(former.box.Kill(ctx)).To(Succeed())
		step("endpoint: host dead, endpoint moved, reachable again", func() { w.expectFailover(ctx, former, died) })
		Expect(w.moves(ctx)).To(Equal(moves + 1))
		step("endpoint: workers Ready through the new address", func() { w.expectWorkersFollow(ctx) })
		step("endpoint: a new worker joined", func() {
			w.scale(ctx, 3)
			w.expectWorkers(ctx, 3)
		})
		step("endpoint: dead machine replaced, 3+3 running", func() {
			w.expectMachineDeleted(ctx, former.machine)
			w.expectRunning(ctx, 6)
		})
		step("endpoint: followed everywhere", func() { w.expectFollowed(ctx) })
		caller.stop()
		Expect(caller.longestOutage()).To(BeNumerically("<", maxOutage))
		step("endpoint: former address not referenced any more", func() { w.expectUnreferenced(ctx, caller.addresses()) })
		step("endpoint: dead host started and reset, workers 3 -> 2", func() {
			Expect(former.box.Start(ctx)).To(Succeed())
			expectAvailable(ctx, former.box)
			w.scale(ctx, 2)
			w.expectRunning(ctx, 5)
		})
		Expect(w.moves(ctx)).To(Equal(moves + 1))
	}, SpecTimeout(40*time.Minute))

	It("stays when only its host's agent stops", func(ctx context.Context) {
		w.expectRunning(ctx, 5)
		before := w.state(ctx)
		box := w.endpoint(ctx).box
		shell(ctx, box, "systemctl stop elemental-agent")
		DeferCleanup(func(ctx context.Context) { shell(ctx, box, "systemctl start elemental-agent") })
		step("endpoint: agent of its host stopped, host disconnected", func() {
			Eventually(func() bool {
				return meta.IsStatusConditionTrue(hostOf(ctx, box).Status.Conditions, infrav1.ConnectedCondition)
			}).WithTimeout(5 * time.Minute).Should(BeFalse())
		})
		step("endpoint: nothing moves", func() {
			Consistently(func() clusterState { return w.state(ctx) }).WithTimeout(2 * failoverAfter).Should(Equal(before))
		})
		Expect(w.endpointReason(ctx)).To(Equal(infrav1.EndpointFromHostReason), "the others reach it")
		shell(ctx, box, "systemctl start elemental-agent")
		expectConnected(ctx, box)
		Expect(w.state(ctx)).To(Equal(before))
	}, SpecTimeout(25*time.Minute))

	It("stays when no agent reaches the manager", func(ctx context.Context) {
		w.expectRunning(ctx, 5)
		before := w.state(ctx)
		const drop = "-p tcp --dport %d -j DROP"
		table := func(verb string) string {
			return fmt.Sprintf("iptables -t raw "+verb+" PREROUTING "+drop, lab.AgentAPIPort)
		}
		shell(ctx, hosts.Management(), table("-I"))
		DeferCleanup(func(ctx context.Context) { _, _ = hosts.Management().Exec(ctx, "sh", "-c", table("-D")) })
		began := time.Now()
		step("endpoint: all agents disconnected, endpoint unobserved", func() {
			Eventually(func() string { return w.endpointReason(ctx) }).WithTimeout(disconnectedTime).Should(Equal(infrav1.EndpointUnobservedReason))
			fmt.Printf("  %s\n", meta.FindStatusCondition(w.infra(ctx).Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition).Message)
		})
		step("endpoint: nothing moves while no agent is connected", func() {
			Consistently(func(g Gomega) {
				g.Expect(w.state(ctx)).To(Equal(before))
				g.Expect(w.endpointReason(ctx)).To(Equal(infrav1.EndpointUnobservedReason))
			}).WithTimeout(disconnectedTime - time.Since(began)).WithPolling(5 * time.Second).Should(Succeed())
		})
		for _, host := range elementalHosts(ctx) {
			connected := meta.FindStatusCondition(host.Status.Conditions, infrav1.ConnectedCondition)
			Expect(connected).To(HaveValue(HaveField("Reason", infrav1.DisconnectedReason)), host.Name)
		}
		shell(ctx, hosts.Management(), table("-D"))
		step("endpoint: agents connected, endpoint observed again", func() {
			expectConnected(ctx, hosts.Hosts()...)
			Eventually(func() string { return w.endpointReason(ctx) }).WithTimeout(2 * time.Minute).Should(Equal(infrav1.EndpointFromHostReason))
		})
		w.expectProbed(ctx, 3)
		Expect(w.state(ctx)).To(Equal(before))
		w.expectNodes(ctx, 5)
	}, SpecTimeout(25*time.Minute))

	It("moves before a rollout replaces its host", func(ctx context.Context) {
		w.expectRunning(ctx, 5)
		moves := w.moves(ctx)
		caller := w.call(ctx, time.Second)
		step("endpoint: control plane rolled", func() {
			w.rollOut(ctx)
			w.expectRunning(ctx, 5)
		})
		step("endpoint: followed everywhere after the rollout", func() { w.expectFollowed(ctx) })
		caller.stop()
		caller.expectShortOutages(w.moves(ctx) - moves)
		step("endpoint: former addresses not referenced any more", func() { w.expectUnreferenced(ctx, caller.addresses()) })
	}, SpecTimeout(50*time.Minute))

	It("moves before a scale-down removes its host", func(ctx context.Context) {
		w.expectRunning(ctx, 5)
		before, moves := w.endpoint(ctx), w.moves(ctx)
		caller := w.call(ctx, time.Second)
		step("endpoint: control planes 3 -> 1, the endpoint's host removed each time", func() {
			markForDeletion(ctx, before.machine)
			kubectl(ctx, "--namespace", namespace, "patch", "kubeadmcontrolplane", w.Name+"-control-plane", "--type", "merge",
				"--patch", `{"spec":{"replicas":1}}`)
			Eventually(func() string { return w.endpoint(ctx).host }).WithTimeout(moveTimeout).ShouldNot(Equal(before.host))
			second := w.endpoint(ctx)
			markForDeletion(ctx, second.machine)
			w.expectMachineDeleted(ctx, before.machine)
			w.expectMachineDeleted(ctx, second.machine)
			w.expectRunning(ctx, 3)
		})
		step("endpoint: followed everywhere after the scale-down", func() { w.expectFollowed(ctx) })
		caller.stop()
		Expect(w.moves(ctx)).To(Equal(moves + 2))
		caller.expectShortOutages(2)
		step("endpoint: former addresses not referenced any more", func() { w.expectUnreferenced(ctx, caller.addresses()) })
	}, SpecTimeout(40*time.Minute))

	It("releases its hosts when the cluster is deleted", func(ctx context.Context) {
		step("endpoint: cluster deleted, hosts as before", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
			surveyed.expectSame(ctx, hosts.Hosts()...)
		})
	}, SpecTimeout(20*time.Minute))
})

// rollOut starts a rollout of the control plane and waits until every Machine is replaced.
func (w workload) rollOut(ctx context.Context) {
	GinkgoHelper()
	before := w.controlPlanes(ctx)
	kubectl(ctx, "--namespace", namespace, "patch", "kubeadmcontrolplane", w.Name+"-control-plane", "--type", "merge",
		"--patch", `{"spec":{"rollout":{"after":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}`)
	Eventually(func(g Gomega) {
		now := w.controlPlanes(ctx)
		g.Expect(now).To(HaveLen(len(before)))
		for uid := range before {
			g.Expect(now).NotTo(HaveKey(uid))
		}
	}).WithTimeout(rolloutTimeout).Should(Succeed())
}

// shortenDisconnectTimeout makes the manager mark an agent as disconnected after 15 s. The release
// of a dead host begins to count then, and disconnected hosts report nothing.
func shortenDisconnectTimeout(ctx context.Context) {
	GinkgoHelper()
	manager := managerDeployment(ctx)
	rolledOut := func(ctx context.Context) {
		kubectl(ctx, "--namespace", manager.Namespace, "rollout", "status", "deployment", manager.Name, "--timeout", "3m")
		expectConnected(ctx, hosts.Hosts()...)
	}
	kubectl(ctx, "--namespace", manager.Namespace, "patch", "deployment", manager.Name, "--type", "json", "--patch", `[
		{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--agent-ping-interval=5s"},
		{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--agent-ping-timeout=5s"},
		{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--agent-disconnect-grace=5s"}]`)
	DeferCleanup(func(ctx context.Context) {
		kubectl(ctx, "--namespace", manager.Namespace, "rollout", "undo", "deployment", manager.Name)
		rolledOut(ctx)
	})
	rolledOut(ctx)
}

// markForDeletion annotates a Machine, so that its control plane deletes it first when it scales
// down.
func markForDeletion(ctx context.Context, machine string) {
	GinkgoHelper()
	kubectl(ctx, "--namespace", namespace, "annotate", "machine", machine, clusterv1.DeleteMachineAnnotation+"=")
}

// createWithShortTimeouts applies a generated cluster with short timeouts for failover and for the
// release of disconnected hosts.
func (w workload) createWithShortTimeouts(ctx context.Context) {
	GinkgoHelper()
	w.createModified(ctx, func(object *unstructured.Unstructured) {
		var err error
		switch object.GetKind() {
		case "ElementalCluster":
			err = unstructured.SetNestedField(object.Object, int64(failoverAfter.Seconds()),
				"spec", "controlPlaneEndpointPolicy", "host", "failover", "afterSeconds")
		case "ElementalMachineTemplate":
			err = unstructured.SetNestedField(object.Object, int64(silentAfter.Seconds()),
				"spec", "template", "spec", "release", "disconnectedTimeoutSeconds")
		}
		Expect(err).NotTo(HaveOccurred())
	})
}
