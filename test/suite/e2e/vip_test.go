//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// maxVIPOutage bounds the time for which a VIP does not answer after its host died.
const maxVIPOutage = 20 * time.Second

var _ = Describe("An endpoint that is a virtual IP address", Ordered, ContinueOnFailure, Label("vip"), func() {
	var w workload
	var address string
	var before surveys

	BeforeAll(func(ctx context.Context) {
		Expect(len(hosts.Hosts())).To(BeNumerically(">=", 5), "these specs need five hosts")
		address = hosts.FreeAddress(0)
		w = vip("vip", address, 3)
		step("vip: disconnect timeout of the manager shortened", func() { shortenDisconnectTimeout(ctx) })
		step("vip: hosts surveyed", func() { before = surveyHosts(ctx) })
	}, NodeTimeout(15*time.Minute))

	It("is refused if no host can have it", func(ctx context.Context) {
		outside := vip("outside", "10.99.0.5", 1)
		outside.expectRefused(ctx, infrav1.VIPOutsideSubnetsReason, func(map[string]any) {})
		missing := vip("missing", hosts.FreeAddress(1), 1)
		missing.expectRefused(ctx, infrav1.InterfaceMissingReason, func(vip map[string]any) { vip["interface"] = "nowhere0" })
	}, SpecTimeout(15*time.Minute))

	It("serves three control planes and a worker", func(ctx context.Context) {
		step("vip: 3+1 running", func() {
			w.createVIP(ctx, func(map[string]any) {})
			w.expectRunning(ctx, 4)
		})
		infra := w.infra(ctx)
		Expect(infra.Spec.ControlPlaneEndpoint).To(Equal(infrav1.ControlPlaneEndpoint{Host: address, Port: 6443}))
		ready := meta.FindStatusCondition(infra.Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)
		Expect(ready).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", infrav1.EndpointFromVIPReason))))
		expectOneHostWith(ctx, address)
		second := vip("second", address, 1)
		second.expectRefused(ctx, infrav1.VIPInUseReason, func(map[string]any) {})
		step("vip: kube-vip uses admin.conf on all control planes", func() { w.expectCredentials(ctx) })
		w.applyHealthCheck(ctx, map[string]string{
			"MAX_UNHEALTHY_WORKERS": `"100%"`, "UNHEALTHY_SECONDS": "40", "REBOOTS": "0", "RECOVERY_SECONDS": "20",
		})
	}, SpecTimeout(30*time.Minute))

	It("answers again soon after its host died, and the next control plane joins through it", func(ctx context.Context) {
		leader := expectOneHostWith(ctx, address)
		machine := hostOf(ctx, leader).Spec.Claim.MachineName
		caller := w.call(ctx, 500*time.Millisecond)
		// A dead host is never released, which the next spec would wait for.
		DeferCleanup(func(ctx context.Context) error { return leader.Start(ctx) })
		Expect(leader.Kill(ctx)).To(Succeed())
		step("vip: dead control plane replaced through the VIP", func() {
			w.expectMachineDeleted(ctx, machine)
			w.expectRunning(ctx, 4)
		})
		caller.stop()
		Expect(caller.addresses()).To(ConsistOf(address))
		Expect(caller.longestOutage()).To(BeNumerically("<", maxVIPOutage))
		step("vip: dead host started, reset and as before", func() {
			Expect(leader.Start(ctx)).To(Succeed())
			expectAvailable(ctx, leader)
			before.expectSame(ctx, leader)
		})
		expectOneHostWith(ctx, address)
	}, SpecTimeout(40*time.Minute))

	It("is removed with the cluster", func(ctx context.Context) {
		step("vip: cluster deleted, hosts as before", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
			before.expectSame(ctx, hosts.Hosts()...)
		})
		Expect(hostsWithAddress(ctx, address)).To(BeEmpty())
	}, SpecTimeout(20*time.Minute))
})

// vip returns a cluster whose endpoint is a VIP.
func vip(name, address string, controlPlanes int) workload {
	return workload{lab.Cluster{
		Name: name, ControlPlanes: controlPlanes, Workers: 1, Flavor: "vip",
		Variables: map[string]string{"CONTROL_PLANE_ENDPOINT_IP": address},
	}}
}

// createVIP applies a generated cluster after change has edited the settings of the VIP. The
// release of disconnected hosts has a short timeout.
func (w workload) createVIP(ctx context.Context, change func(vip map[string]any)) {
	GinkgoHelper()
	w.createModified(ctx, func(object *unstructured.Unstructured) {
		switch object.GetKind() {
		case "ElementalCluster":
			path := []string{"spec", "controlPlaneEndpointPolicy", "vip"}
			settings, found, err := unstructured.NestedMap(object.Object, path...)
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(BeTrue())
			change(settings)
			Expect(unstructured.SetNestedMap(object.Object, settings, path...)).To(Succeed())
		case "ElementalMachineTemplate":
			Expect(unstructured.SetNestedField(object.Object, int64(silentAfter.Seconds()),
				"spec", "template", "spec", "release", "disconnectedTimeoutSeconds")).To(Succeed())
		}
	})
}

// expectRefused checks that the cluster has no endpoint for the given reason, claims no host, and
// can be deleted.
func (w workload) expectRefused(ctx context.Context, reason string, change func(vip map[string]any)) {
	GinkgoHelper()
	step("vip: "+reason, func() {
		w.createVIP(ctx, change)
		Eventually(func() string { return w.endpointReason(ctx) }).WithTimeout(time.Minute).Should(Equal(reason))
		condition := meta.FindStatusCondition(w.infra(ctx).Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)
		fmt.Printf("  %s: %s\n", condition.Status, condition.Message)
		Consistently(func(g Gomega) {
			g.Expect(w.infra(ctx).Status.Initialization.Provisioned).To(BeNil())
			for _, host := range elementalHosts(ctx) {
				if c := host.Spec.Claim; c != nil {
					g.Expect(c.ClusterName).NotTo(Equal(w.Name), host.Name)
				}
			}
		}).WithTimeout(5 * time.Second).WithPolling(time.Second).Should(Succeed())
		w.delete(ctx)
	})
}

// hostsWithAddress returns the hosts that have an address on an interface.
func hostsWithAddress(ctx context.Context, address string) []*engine.Host {
	GinkgoHelper()
	var out []*engine.Host
	for _, box := range hosts.Hosts() {
		if strings.Contains(shell(ctx, box, "ip -oneline address show"), " "+address+"/") {
			out = append(out, box)
		}
	}
	return out
}

// expectOneHostWith waits until exactly one host has an address: hosts are asked one after the other,
// and a busy machine makes kube-vip choose another leader.
func expectOneHostWith(ctx context.Context, address string) *engine.Host {
	GinkgoHelper()
	var found []*engine.Host
	Eventually(func() []*engine.Host {
		found = hostsWithAddress(ctx, address)
		return found
	}).WithTimeout(time.Minute).Should(HaveLen(1))
	return found[0]
}

// expectCredentials waits until kube-vip uses admin.conf on every control plane. Only during
// kubeadm init it needs super-admin.conf.
func (w workload) expectCredentials(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, host := range w.claimed(ctx) {
			if !host.Spec.Claim.Role.IsControlPlane() {
				continue
			}
			manifest, err := boxOf(&host).Exec(ctx, "cat", "/etc/kubernetes/manifests/kube-vip.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(manifest).To(ContainSubstring("path: /etc/kubernetes/admin.conf"), host.Name)
			g.Expect(manifest).NotTo(ContainSubstring("super-admin.conf"), host.Name)
		}
	}).WithTimeout(5 * time.Minute).Should(Succeed())
}
