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
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

const (
	// maxManagerRolled and maxFallback are bounds of what a person notices.
	maxManagerRolled = 15 * time.Second
	maxFallback      = time.Minute
	// faultLasts is how long a fault is observed: several probes of Cluster API, and renewals of
	// a kubelet.
	faultLasts = 45 * time.Second
	// agentRounds is how often agents are killed, and how often they are updated.
	agentRounds = 20
)

// serverKiller kills each API server of a host that is started.
const serverKiller = "while :; do pkill -KILL -x kube-apiserver; sleep 0.2; done"

// These specs share a cluster: none of them replaces a Machine.
var _ = Describe("A cluster that nothing can dial into, when parts fail", Ordered, ContinueOnFailure, Label("tunnel-faults"), func() {
	w := workload{lab.Cluster{Name: "faults", Flavor: "tunnel", ControlPlanes: 3, Workers: 2}}
	var site *remoteSite

	BeforeAll(func(ctx context.Context) {
		site = startSite(ctx)
		exposeGateway(ctx)
		step("faults: 3+2 running", func() {
			w.createOn(ctx, siteGroup)
			w.expectRunning(ctx, 5)
			w.expectTunnel(ctx, "True")
		})
	}, NodeTimeout(25*time.Minute))

	It("is reachable again soon after the manager was replaced", func(ctx context.Context) {
		before := w.connectionConditions(ctx)
		caller := w.call(ctx, time.Second)
		manager := managerDeployment(ctx)
		step("faults: manager rolled", func() {
			kubectl(ctx, "--namespace", manager.Namespace, "rollout", "restart", "deployment", manager.Name)
			kubectl(ctx, "--namespace", manager.Namespace, "rollout", "status", "deployment", manager.Name, "--timeout", "3m")
			expectConnected(ctx, site.Hosts()...)
			made := len(caller.all())
			Eventually(func() int { return len(caller.all()) }).WithTimeout(5 * time.Minute).Should(BeNumerically(">", made+30))
		})
		caller.stop()
		Expect(caller.longestOutage()).To(BeNumerically("<", maxManagerRolled))
		Expect(w.connectionConditions(ctx)).To(Equal(before))
	}, SpecTimeout(30*time.Minute))

	// The kubelet starts the API server again, so it is killed for as long as the fault lasts.
	It("is served by another control plane when the API server of a host fails", func(ctx context.Context) {
		w.expectFault(ctx, site, "systemd-run --quiet --unit server-killer sh -c '"+serverKiller+"'", "systemctl stop server-killer")
	}, SpecTimeout(30*time.Minute))

	It("is served by another control plane when the agent of a host hangs", func(ctx context.Context) {
		const agent = "$(systemctl show --value --property MainPID elemental-agent)"
		w.expectFault(ctx, site, "kill -STOP "+agent, "kill -CONT "+agent)
	}, SpecTimeout(30*time.Minute))

	It("is carried by workers while the agents of its control plane are stopped", func(ctx context.Context) {
		before := w.specs(ctx)
		outside, worker := w.call(ctx, time.Second), w.callPatientlyOnWorker(ctx, site)
		// Later specs need the agents, also if this one fails.
		DeferCleanup(func(ctx context.Context) { w.onControlPlane(ctx, site, "systemctl start elemental-agent") })
		step("faults: agents of the control plane stopped, workers carry", func() {
			w.onControlPlane(ctx, site, "systemctl stop elemental-agent")
			Eventually(func() string { return w.tunnelMessage(ctx) }).WithTimeout(2 * time.Minute).Should(ContainSubstring("workers"))
		})
		w.expectNodes(ctx, 5)
		step("faults: agents of the control plane started, it carries again", func() {
			w.onControlPlane(ctx, site, "systemctl start elemental-agent")
			Eventually(func() string { return w.tunnelMessage(ctx) }).WithTimeout(2 * time.Minute).
				Should(And(HavePrefix("Connections go through "), Not(ContainSubstring("workers"))))
		})
		outside.stop()
		Expect(outside.longestOutage()).To(BeNumerically("<", maxFallback))
		worker.stop()
		Expect(worker.longestOutage()).To(BeZero(), "hosts do not need the agents")
		Expect(w.specs(ctx)).To(Equal(before))
	}, SpecTimeout(30*time.Minute))

	It("keeps connections while agents are killed and updated", func(ctx context.Context) {
		admin := w.hostsOf(ctx, true)[0]
		config := shell(ctx, site.box(&admin), "cat "+adminConfig)
		boxes := []*engine.Host{site.box(&admin), site.box(&w.hostsOf(ctx, false)[0])}
		for _, box := range boxes {
			startLoad(ctx, box, config)
		}
		step(fmt.Sprintf("faults: agents of two hosts killed and updated %d times", agentRounds), func() {
			var running sync.WaitGroup
			for _, box := range boxes {
				running.Go(func() {
					defer GinkgoRecover()
					fmt.Printf("  %s: %s\n", box.Name, shell(ctx, box, fmt.Sprintf(killAndUpdate, agentRounds)))
				})
			}
			running.Wait()
		})
		for _, box := range boxes {
			expectLoad(ctx, box)
		}
		expectConnected(ctx, boxes...)
	}, SpecTimeout(30*time.Minute))

	It("gets its Nodes back when hosts reboot while the manager is away", func(ctx context.Context) {
		controlPlanes := w.hostsOf(ctx, true)
		asked, rebooted := site.box(&controlPlanes[0]), []infrav1.ElementalHost{controlPlanes[1], w.hostsOf(ctx, false)[0]}
		DeferCleanup(func(ctx context.Context) { scaleManager(ctx, 1) })
		step("faults: manager away", func() { scaleManager(ctx, 0) })
		step("faults: a control plane and a worker rebooted, Nodes Ready", func() {
			for i := range rebooted {
				rebootAndWait(ctx, site.box(&rebooted[i]))
			}
			for _, host := range rebooted {
				expectNodeBack(ctx, asked, host.Name, time.Now())
			}
		})
		step("faults: manager back, 3+2 running", func() {
			scaleManager(ctx, 1)
			w.expectTunnel(ctx, "True")
			w.expectRunning(ctx, 5)
		})
	}, SpecTimeout(30*time.Minute))

	It("needs neither CoreDNS nor kube-proxy", func(ctx context.Context) {
		outside, worker := w.callPatiently(ctx), w.callPatientlyOnWorker(ctx, site)
		step("faults: CoreDNS and kube-proxy gone", func() {
			system := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "kube-system", Name: name} }
			w.deleteInSite(ctx, &appsv1.Deployment{ObjectMeta: system("coredns")}, &appsv1.DaemonSet{ObjectMeta: system("kube-proxy")})
			w.expectReached(ctx, faultLasts/2)
		})
		for _, c := range []*caller{outside, worker} {
			c.stop()
			Expect(c.longestOutage()).To(BeZero())
		}
	}, SpecTimeout(30*time.Minute))

	It("has never been dialed into", func(ctx context.Context) {
		Expect(site.Refused(ctx)).To(BeZero())
		step("faults: cluster deleted", func() { w.delete(ctx) })
		Expect(site.Refused(ctx)).To(BeZero())
	}, SpecTimeout(30*time.Minute))
})

// expectFault has a script break something on the control-plane host that carries most
// connections, and expects that all are served again soon. Another script repairs it.
func (w workload) expectFault(ctx context.Context, site *remoteSite, fault, repair string) {
	GinkgoHelper()
	carrier, before := w.carrier(ctx, site), w.specs(ctx)
	box, observed := site.box(carrier), w.observe(ctx, site, carrier)
	DeferCleanup(func(ctx context.Context) { _, _ = box.Exec(ctx, "sh", "-c", repair) })
	step("faults: "+carrier.Name+" fails", func() {
		shell(ctx, box, fault)
		w.expectReached(ctx, faultLasts)
	})
	observed.expectServed(maxPowerCut)
	Expect(w.specs(ctx)).To(Equal(before))
	step("faults: "+carrier.Name+" repaired", func() {
		shell(ctx, box, repair)
		// On a control plane the kubelet uses the API server of its own host.
		expectNodeBack(ctx, box, carrier.Name, time.Now())
		w.expectRunning(ctx, 5)
	})
}

// onControlPlane runs a script on all control-plane hosts at the same time.
func (w workload) onControlPlane(ctx context.Context, site *remoteSite, script string) {
	GinkgoHelper()
	var running sync.WaitGroup
	for _, host := range w.hostsOf(ctx, true) {
		box := site.box(&host)
		running.Go(func() {
			defer GinkgoRecover()
			shell(ctx, box, script)
		})
	}
	running.Wait()
}

func rebootAndWait(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	before, err := box.BootID(ctx)
	Expect(err).NotTo(HaveOccurred())
	_, _ = box.Exec(ctx, "systemctl", "reboot")
	Eventually(func() (string, error) { return box.BootID(ctx) }).WithTimeout(2 * time.Minute).ShouldNot(Or(Equal(before), BeEmpty()))
	Expect(box.WaitBooted(ctx)).To(Succeed())
}

// expectNodeBack waits until the Node is Ready and its kubelet has renewed its Lease since.
func expectNodeBack(ctx context.Context, asked *engine.Host, node string, since time.Time) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		at, err := renewedAt(ctx, asked, node)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(at).To(BeTemporally(">", since))
		out, err := asked.Exec(ctx, "kubectl", "--kubeconfig", adminConfig, "get", "node", node,
			"--output", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(strings.TrimSpace(out)).To(Equal("True"))
	}).WithTimeout(3 * time.Minute).Should(Succeed())
}
