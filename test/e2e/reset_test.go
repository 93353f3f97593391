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
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/survey"
)

var _ = Describe("A host that was a node", func() {
	It("is what it was before", Label("reset"), func(ctx context.Context) {
		var before stock
		step("reset: hosts surveyed", func() { before = takeStock(ctx) })
		plain := workload{lab.Cluster{Name: "plain", ControlPlanes: 1, Workers: 1}}
		step("reset: 1+1 by cloud-config with pods running", func() {
			plain.create(ctx)
			plain.expectRunning(ctx, 2)
			plain.runPods(ctx)
		})
		step("reset: the survey sees the node", func() { plain.expectSeen(ctx, before) })
		step("reset: cluster deleted with containers running, hosts as before", func() {
			plain.delete(ctx)
			expectAllAvailable(ctx)
			before.expectSame(ctx, hosts.Hosts()...)
		})
	}, SpecTimeout(20*time.Minute))

	// The worker goes and comes again and again, so that each reset is followed
	// by the proof that hosts which were reset can be nodes.
	It("is what it was before however its reset was hindered", Label("reset", "ignition"), func(ctx context.Context) {
		var before stock
		step("hindered: hosts surveyed", func() { before = takeStock(ctx) })
		w := workload{lab.Cluster{Name: "ignition", ControlPlanes: 1, Workers: 1}}
		step("hindered: 1+1 by Ignition with pods running", func() {
			w.createIgnition(ctx)
			w.expectRunning(ctx, 2)
			w.runPods(ctx)
		})
		step("hindered: files, directories, links, users and units of Ignition are there", func() { w.expectIgnited(ctx) })
		for _, c := range hindrances() {
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

// stock is what there was on each host, by its name.
type stock map[string]survey.Survey

func takeStock(ctx context.Context) stock {
	GinkgoHelper()
	taken, errs := stock{}, map[string]error{}
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

// expectSame looks once: what goes away by itself later was left behind.
func (s stock) expectSame(ctx context.Context, boxes ...*engine.Host) {
	GinkgoHelper()
	for _, box := range boxes {
		now, err := survey.Take(ctx, box)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Join(survey.Diff(s[box.Name], now), "\n")).To(BeEmpty(), "host %s", box.Name)
	}
}

// expectSeen makes sure that a survey would show what a node leaves.
func (w workload) expectSeen(ctx context.Context, before stock) {
	GinkgoHelper()
	for _, box := range []*engine.Host{w.controlPlaneBox(ctx), w.workerBox(ctx)} {
		now, err := survey.Take(ctx, box)
		Expect(err).NotTo(HaveOccurred())
		seen := map[string]int{}
		for _, line := range survey.Diff(before[box.Name], now) {
			section, _, _ := strings.Cut(line, " ")
			seen[section]++
		}
		fmt.Printf("  %s as a node differs in %v\n", box.Name, seen)
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

// box is the host of the Machine that a label selects and that stays.
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

// hostOf is the ElementalHost of a host.
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

// removeWorker scales the workers to none. Nothing is drained, so that all
// containers run when the reset begins.
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

// expectOffered waits until a host was reset and is offered again.
func expectOffered(ctx context.Context, box *engine.Host) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		host := hostOf(ctx, box)
		g.Expect(host.Spec.Claim).To(BeNil())
		for _, condition := range []string{infrav1.CleanCondition, infrav1.AvailableCondition} {
			g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, condition)).To(BeTrue(), "%s: %+v", condition, host.Status.Conditions)
		}
	}).WithTimeout(release).WithPolling(300 * time.Millisecond).Should(Succeed())
}
