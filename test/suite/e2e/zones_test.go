//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

// In these specs one failure domain has all spare hosts. The two others have one host each.
var _ = Describe("Control planes in three failure domains", Ordered, Label("zones"), func() {
	w := workload{lab.Cluster{Name: "zones", ControlPlanes: 3, Workers: 0}}

	BeforeAll(func(ctx context.Context) {
		Expect(len(hosts.Hosts())).To(BeNumerically(">=", 4), "these specs need four hosts")
		labelZones(ctx, "a", "b", "c")
	})

	It("are spread over all three", func(ctx context.Context) {
		step("zones: 3+0 running in a, b and c", func() {
			w.createWithShortRelease(ctx)
			w.expectRunning(ctx, 3)
			Expect(w.zones(ctx)).To(Equal([]string{"a", "b", "c"}))
		})
		step("zones: Nodes have the labels of their hosts", func() { w.expectNodeLabels(ctx) })
	}, SpecTimeout(25*time.Minute))

	It("are replaced in a rollout, although only one domain has a spare host", func(ctx context.Context) {
		step("zones: control plane rolled", func() {
			w.rollOut(ctx)
			w.expectRunning(ctx, 3)
		})
		fmt.Printf("  in %s\n", strings.Join(w.zones(ctx), ", "))
	}, SpecTimeout(40*time.Minute))

	It("are replaced in another domain if a host dies and its domain has no other", func(ctx context.Context) {
		w.applyHealthCheck(ctx, map[string]string{
			"MAX_UNHEALTHY_WORKERS": `"100%"`, "UNHEALTHY_SECONDS": "40", "REBOOTS": "0", "RECOVERY_SECONDS": "20",
		})
		alone := w.hostWithoutSpare(ctx)
		before := w.zones(ctx)
		step("zones: host of "+zoneOf(&alone)+" dead, machine replaced", func() {
			Expect(boxOf(&alone).Kill(ctx)).To(Succeed())
			w.expectMachineDeleted(ctx, alone.Spec.Claim.MachineName)
			w.expectRunning(ctx, 3)
		})
		fmt.Printf("  from %s to %s\n", strings.Join(before, ", "), strings.Join(w.zones(ctx), ", "))
		Expect(w.zones(ctx)).NotTo(ContainElement(zoneOf(&alone)))
		step("zones: dead host started and reset", func() {
			Expect(boxOf(&alone).Start(ctx)).To(Succeed())
			expectAvailable(ctx, boxOf(&alone))
		})
	}, SpecTimeout(40*time.Minute))

	It("are released with the cluster", func(ctx context.Context) {
		step("zones: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))
})

// labelZones puts one host into each failure domain, and all others into the first one. The
// labels are removed after the specs.
func labelZones(ctx context.Context, first string, others ...string) {
	GinkgoHelper()
	list := elementalHosts(ctx)
	label := func(ctx context.Context, host, value string) {
		kubectl(ctx, "--namespace", namespace, "label", "elementalhost", host, "--overwrite", infrav1.DefaultFailureDomainLabel+value)
	}
	for i, host := range list {
		zone := first
		if i < len(others) {
			zone = others[i]
		}
		label(ctx, host.Name, "="+zone)
	}
	DeferCleanup(func(ctx context.Context) {
		for _, host := range list {
			label(ctx, host.Name, "-")
		}
	})
}

func zoneOf(host *infrav1.ElementalHost) string {
	return host.Labels[infrav1.DefaultFailureDomainLabel]
}

// zones returns the failure domains of the cluster's Machines, sorted. Each Machine must be on a
// host of its failure domain.
func (w workload) zones(ctx context.Context) []string {
	GinkgoHelper()
	var zones []string
	for _, host := range w.claimed(ctx) {
		machine := &clusterv1.Machine{}
		key := client.ObjectKey{Namespace: namespace, Name: host.Spec.Claim.MachineName}
		Expect(management.Get(ctx, key, machine)).To(Succeed())
		Expect(machine.Spec.FailureDomain).To(Equal(zoneOf(&host)), "Machine %s", machine.Name)
		zones = append(zones, zoneOf(&host))
	}
	slices.Sort(zones)
	return zones
}

// expectNodeLabels waits until each Node has the failure domain of its host, and further labels that hosts get now.
func (w workload) expectNodeLabels(ctx context.Context) {
	GinkgoHelper()
	const region, shelf = "topology.kubernetes.io/region", "rack.node.cluster.x-k8s.io/shelf"
	claimed := w.claimed(ctx)
	for i, host := range claimed {
		kubectl(ctx, "--namespace", namespace, "label", "elementalhost", host.Name, region+"=north", fmt.Sprintf("%s=%d", shelf, i))
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "--namespace", namespace, "label", "elementalhost", host.Name, region+"-", shelf+"-")
		})
	}
	nodes := w.client(ctx)
	Eventually(func(g Gomega) {
		for i, host := range claimed {
			machine, node := &clusterv1.Machine{}, &corev1.Node{}
			g.Expect(management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: host.Spec.Claim.MachineName}, machine)).To(Succeed())
			g.Expect(nodes.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node)).To(Succeed())
			g.Expect(node.Labels).To(And(
				HaveKeyWithValue(corev1.LabelTopologyZone, zoneOf(&host)), HaveKeyWithValue(region, "north"), HaveKeyWithValue(shelf, fmt.Sprint(i)),
			), "Node %s", node.Name)
		}
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}

// hostWithoutSpare returns a control-plane host that is the only host of its failure domain.
func (w workload) hostWithoutSpare(ctx context.Context) infrav1.ElementalHost {
	GinkgoHelper()
	members := map[string]int{}
	for _, host := range elementalHosts(ctx) {
		members[zoneOf(&host)]++
	}
	for _, host := range w.claimed(ctx) {
		if members[zoneOf(&host)] == 1 {
			return host
		}
	}
	Fail("no control plane is on the only host of a failure domain")
	return infrav1.ElementalHost{}
}

// createWithShortRelease applies a generated cluster that waits only for a short time for
// disconnected hosts that it releases.
func (w workload) createWithShortRelease(ctx context.Context) {
	GinkgoHelper()
	w.createModified(ctx, func(object *unstructured.Unstructured) {
		if object.GetKind() == "ElementalMachineTemplate" {
			Expect(unstructured.SetNestedField(object.Object, int64(silentAfter.Seconds()),
				"spec", "template", "spec", "release", "disconnectedTimeoutSeconds")).To(Succeed())
		}
	})
}
