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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/survey"
)

var _ = Describe("A host after its reset", func() {
	It("is the same as before its bootstrap", Label("reset"), func(ctx context.Context) {
		var before surveys
		step("reset: hosts surveyed", func() { before = surveyHosts(ctx) })
		plain := workload{lab.Cluster{Name: "plain", ControlPlanes: 1, Workers: 1}}
		step("reset: 1+1 by cloud-config with pods running", func() {
			plain.create(ctx)
			plain.expectRunning(ctx, 2)
			plain.runPods(ctx)
		})
		step("reset: the survey detects the node", func() { plain.expectNodeFound(ctx, before) })
		step("reset: cluster deleted with containers running, hosts as before", func() {
			plain.delete(ctx)
			expectAllAvailable(ctx)
			before.expectSame(ctx, hosts.Hosts()...)
		})
	}, SpecTimeout(20*time.Minute))

	// The worker is removed and added repeatedly, which proves that hosts can be nodes again after
	// each reset.
	It("is the same as before its bootstrap, whatever hindered the reset", Label("reset", "ignition"), func(ctx context.Context) {
		var before surveys
		step("hindered: hosts surveyed", func() { before = surveyHosts(ctx) })
		w := workload{lab.Cluster{Name: "ignition", ControlPlanes: 1, Workers: 1}}
		step("hindered: 1+1 by Ignition with pods running", func() {
			w.createIgnition(ctx)
			w.expectRunning(ctx, 2)
			w.runPods(ctx)
		})
		step("hindered: files, directories, links, users and units of Ignition are there", func() { w.expectIgnitionApplied(ctx) })
		for _, c := range obstacles() {
			step("hindered: "+c.name, func() {
				c.run(ctx, w, before)
				w.scale(ctx, 1)
				w.expectRunning(ctx, 2)
				w.expectPods(ctx)
			})
		}
		step("hindered: cluster deleted while its control plane's agent and power fail, hosts as before", func() {
			box := w.controlPlaneBox(ctx)
			putFaults(ctx, box)
			w.delete(ctx)
			expectAllAvailable(ctx)
			expectFaults(ctx, box)
			before.expectSame(ctx, hosts.Hosts()...)
		})
	}, SpecTimeout(30*time.Minute))
})

// surveys has the survey of each host by its name.
type surveys map[string]survey.Survey

func surveyHosts(ctx context.Context) surveys {
	GinkgoHelper()
	taken, errs := surveys{}, map[string]error{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, box := range hosts.Hosts() {
		group.Go(func() {
			found, err := survey.Take(ctx, box)
			mu.Lock()
			defer mu.Unlock()
			taken[box.Name], errs[box.Name] = found, err
		})
	}
	group.Wait()
	for name, err := range errs {
		Expect(err).NotTo(HaveOccurred(), "host %s", name)
	}
	return taken
}

// expectSame compares once, without waiting: leftovers that disappear later are leftovers.
func (s surveys) expectSame(ctx context.Context, boxes ...*engine.Host) {
	GinkgoHelper()
	for _, box := range boxes {
		now, err := survey.Take(ctx, box)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Join(survey.Diff(s[box.Name], now), "\n")).To(BeEmpty(), "host %s", box.Name)
	}
}

// expectNodeFound checks that a survey detects the traces of a node.
func (w workload) expectNodeFound(ctx context.Context, before surveys) {
	GinkgoHelper()
	for _, box := range []*engine.Host{w.controlPlaneBox(ctx), w.workerBox(ctx)} {
		now, err := survey.Take(ctx, box)
		Expect(err).NotTo(HaveOccurred())
		seen := map[string]int{}
		for _, line := range survey.Diff(before[box.Name], now) {
			section, _, _ := strings.Cut(line, " ")
			seen[section]++
		}
		fmt.Printf("  %s differs as a node in %v\n", box.Name, seen)
		for _, section := range []string{
			"files", "mounts", "processes", "namespaces", "interfaces", "addresses", "routes", "filter", "units", "sysctls",
			"cgroups", "containers",
		} {
			Expect(seen).To(HaveKey(section))
		}
	}
}

func (w workload) controlPlaneBox(ctx context.Context) *engine.Host {
	GinkgoHelper()
	return w.box(ctx, client.HasLabels{clusterv1.MachineControlPlaneLabel})
}

func (w workload) workerBox(ctx context.Context) *engine.Host {
	GinkgoHelper()
	return w.box(ctx, client.HasLabels{clusterv1.MachineDeploymentNameLabel})
}

// box returns the host of a Machine that a label selects and that is not being deleted.
func (w workload) box(ctx context.Context, label client.ListOption) *engine.Host {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, append(w.inCluster(), label)...)).To(Succeed())
	for _, machine := range list.Items {
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		host := &infrav1.ElementalHost{}
		Expect(management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine.Status.NodeRef.Name}, host)).To(Succeed())
		return boxOf(host)
	}
	Fail("no Machine is selected")
	return nil
}

// hostOf returns the ElementalHost of a lab host.
func hostOf(ctx context.Context, box *engine.Host) *infrav1.ElementalHost {
	GinkgoHelper()
	for _, host := range elementalHosts(ctx) {
		if hasAddress(&host, box.Address) {
			return &host
		}
	}
	Fail("no ElementalHost has the address of " + box.Name)
	return nil
}

// removeWorker scales the workers to zero. The Node is not drained, so that all containers run
// when the reset begins.
func (w workload) removeWorker(ctx context.Context) {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, append(w.inCluster(), client.HasLabels{clusterv1.MachineDeploymentNameLabel})...)).To(Succeed())
	Expect(list.Items).To(HaveLen(1))
	machine := &list.Items[0]
	unchanged := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
	Expect(management.Patch(ctx, machine, client.MergeFrom(unchanged))).To(Succeed())
	w.scale(ctx, 0)
}

// expectAvailable waits until a host was reset and is available again.
func expectAvailable(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		host := hostOf(ctx, box)
		g.Expect(host.Spec.Claim).To(BeNil())
		for _, condition := range []string{infrav1.CleanCondition, infrav1.AvailableCondition} {
			g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, condition)).To(BeTrue(), "%s: %+v", condition, host.Status.Conditions)
		}
	}).WithTimeout(resetTimeout).WithPolling(300 * time.Millisecond).Should(Succeed())
}
