//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	// promisedFailover is how long docs/endpoint.md says that a failover takes after a power cut.
	promisedFailover = 45 * time.Second
	// maxFailover is asserted: on a busy machine agents and manager are late. A failover that waits
	// until the dead host counts as disconnected takes more than two minutes.
	maxFailover = promisedFailover + 15*time.Second
	// minBetweenMoves is how long the endpoint stays after a failover, with a reserve.
	minBetweenMoves = 65 * time.Second
	// restartTime is how long the API server is away when it restarts.
	restartTime = time.Minute
	// partitionTime is longer than the default of afterSeconds.
	partitionTime = (infrav1.DefaultFailoverAfterSeconds + 30) * time.Second
	// restTime is two rounds of questions.
	restTime = time.Minute
)

// These specs change no time: neither in the ElementalCluster nor in the manager's flags.
var _ = Describe("An endpoint host, with the default times", Ordered, ContinueOnFailure, Label("failover"), func() {
	w := workload{lab.Cluster{Name: "failover", ControlPlanes: 3, Workers: 0}}

	BeforeAll(func(ctx context.Context) {
		Expect(len(hosts.Hosts())).To(BeNumerically(">=", 3), "these specs need three hosts")
		grantMetrics(ctx)
		step("failover: 3+0 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 3)
		})
		step("failover: every control plane probes the endpoint", func() { w.expectProbed(ctx, 3) })
	}, NodeTimeout(20*time.Minute))

	It("is not asked at rest", func(ctx context.Context) {
		step("failover: nothing asked at rest", func() { w.expectNothingAsked(ctx) })
	}, SpecTimeout(10*time.Minute))

	It("keeps the endpoint when its API server restarts for 60 s", func(ctx context.Context) {
		before, asked := w.state(ctx), questions(ctx)
		at := w.endpoint(ctx)
		const manifest, away = "/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/kube-apiserver.yaml"
		caller := w.call(ctx, time.Second)
		shell(ctx, at.box, "mv "+manifest+" "+away)
		back := "test ! -e " + away + " || mv " + away + " " + manifest
		DeferCleanup(func(ctx context.Context) { shell(ctx, at.box, back) })
		step("failover: API server stopped, unreachable for the others", func() { w.expectUnreachable(ctx, at) })
		Eventually(caller.failingSince).WithTimeout(time.Minute).ShouldNot(BeZero())
		step("failover: nothing moves without the API server", func() {
			rest := restartTime - time.Since(caller.failingSince())
			Consistently(func() clusterState { return w.state(ctx) }).WithTimeout(rest).Should(Equal(before))
		})
		shell(ctx, at.box, back)
		step("failover: API server started, endpoint reachable", func() { w.expectProbed(ctx, 3) })
		caller.stop()
		Expect(caller.longestOutage()).To(BeNumerically(">=", restartTime))
		fmt.Printf("  %d questions\n", questions(ctx)-asked)
		Expect(questions(ctx)).To(BeNumerically(">", asked), "the hosts were asked")
		Expect(w.state(ctx)).To(Equal(before))
	}, SpecTimeout(15*time.Minute))

	It("keeps the endpoint while a partition leaves it connected and well", func(ctx context.Context) {
		before, asked := w.state(ctx), questions(ctx)
		at := w.endpoint(ctx)
		partition := func(verb string) string {
			var script strings.Builder
			for _, host := range w.claimed(ctx) {
				if host.Name != at.host {
					fmt.Fprintf(&script, "iptables -t raw %s PREROUTING -p tcp --dport 6443 -s %s -j DROP\n", verb, boxOf(&host).Address)
				}
			}
			return script.String()
		}
		remove := partition("-D")
		shell(ctx, at.box, partition("-I"))
		DeferCleanup(func(ctx context.Context) { _, _ = at.box.Exec(ctx, "sh", "-c", remove) })
		step("failover: partition, endpoint unreachable for the others", func() { w.expectUnreachable(ctx, at) })
		step("failover: nothing moves in a partition", func() {
			Consistently(func() clusterState { return w.state(ctx) }).WithTimeout(partitionTime).Should(Equal(before))
		})
		ready := meta.FindStatusCondition(w.infra(ctx).Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)
		Expect(ready).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", infrav1.EndpointUnreachableReason))))
		fmt.Printf("  %s\n  %d questions\n", ready.Message, questions(ctx)-asked)
		Expect(questions(ctx)).To(BeNumerically(">", asked), "the hosts were asked")
		shell(ctx, at.box, remove)
		step("failover: partition ended, endpoint reachable", func() { w.expectProbed(ctx, 3) })
		Expect(w.state(ctx)).To(Equal(before))
		step("failover: nothing asked afterwards", func() { w.expectNothingAsked(ctx) })
	}, SpecTimeout(20*time.Minute))

	It("loses the endpoint within 45 s of a power cut", func(ctx context.Context) {
		const cuts = 2
		for range cuts {
			former, moves := w.endpoint(ctx), w.moves(ctx)
			fmt.Printf("  load %s\n", load())
			caller := w.call(ctx, time.Second)
			died := time.Now()
			// A dead host is never released, which the next spec would wait for.
			DeferCleanup(func(ctx context.Context) error { return former.box.Start(ctx) })
			Expect(former.box.Kill(ctx)).To(Succeed())
			step("failover: power cut, endpoint moved", func() { w.expectFailoverSoon(ctx, former, died) })
			Expect(w.moves(ctx)).To(Equal(moves + 1))
			step("failover: dead host started, endpoint followed", func() {
				Expect(former.box.Start(ctx)).To(Succeed())
				w.expectFollowed(ctx)
				w.expectProbed(ctx, 3)
			})
			caller.stop()
			caller.longestOutage()
			Eventually(func() time.Duration {
				return time.Since(w.infra(ctx).Status.Endpoint.LastMove.StartedAt.Time)
			}).WithTimeout(2 * minBetweenMoves).Should(BeNumerically(">", minBetweenMoves))
		}
	}, SpecTimeout(30*time.Minute))

	It("is released with the cluster", func(ctx context.Context) {
		step("failover: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))
})

// expectUnreachable waits until all control planes but the endpoint's report it as unreachable.
func (w workload) expectUnreachable(ctx context.Context, at endpoint) {
	GinkgoHelper()
	Eventually(func() bool { return !w.unreachableSince(ctx, at, w.ControlPlanes-1).IsZero() }).
		WithTimeout(2 * time.Minute).WithPolling(200 * time.Millisecond).Should(BeTrue())
}

// expectFailoverSoon waits until the management cluster's objects name another host than one whose
// power was cut, and checks how long that took.
func (w workload) expectFailoverSoon(ctx context.Context, former endpoint, died time.Time) {
	GinkgoHelper()
	seen := milestones{died, map[string]time.Time{}}
	Eventually(func(g Gomega) {
		seen.record(seenEvidence, !w.unreachableSince(ctx, former, w.ControlPlanes-1).IsZero())
		cluster := &clusterv1.Cluster{}
		g.Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
		seen.record(seenInfra, w.infra(ctx).Spec.ControlPlaneEndpoint.Host != former.address)
		seen.record(seenCluster, cluster.Spec.ControlPlaneEndpoint.Host != former.address)
		seen.record(seenSecret, server(w.kubeconfig(ctx)) != former.hostPort())
		for _, what := range []string{seenInfra, seenCluster, seenSecret} {
			g.Expect(seen.at).To(HaveKey(what))
		}
	}).WithTimeout(moveTimeout).WithPolling(200 * time.Millisecond).Should(Succeed())
	took := seen.last(seenInfra, seenCluster, seenSecret).Sub(died)
	fmt.Printf("  endpoint moved %.1f s after the power cut, promised are %.0f s; load %s\n", took.Seconds(), promisedFailover.Seconds(), load())
	Expect(took).To(BeNumerically("<", maxFailover))
	// The status is written at the end of the reconcile, after all of these.
	Eventually(func(g Gomega) {
		g.Expect(w.infra(ctx).Status.Endpoint.LastMove).To(HaveValue(HaveField("From", ContainSubstring(former.address))))
	}).WithTimeout(maxFailover).Should(Succeed())
	Expect(w.infra(ctx).Status.Endpoint.LastMove.Cause).To(Equal(infrav1.MoveHostDead))
}

// load returns the load averages of the machine that runs the lab.
func load() string {
	GinkgoHelper()
	text, err := os.ReadFile("/proc/loadavg")
	Expect(err).NotTo(HaveOccurred())
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
