//go:build e2e

package e2e

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// remediationTimeout bounds a remediation on a busy machine: the MachineHealthCheck reacts, the
// host reboots and the recovery time passes.
const remediationTimeout = 12 * time.Minute

var _ = Describe("A Machine that is not healthy", Ordered, Label("remediation"), func() {
	w := workload{lab.Cluster{Name: "remedy", ControlPlanes: 1, Workers: 2}}

	BeforeAll(func(ctx context.Context) {
		step("remedy: 1+2 running", func() {
			w.create(ctx)
			w.expectRunning(ctx, 3)
		})
		w.applyHealthCheck(ctx, map[string]string{"MAX_UNHEALTHY_WORKERS": `"100%"`, "UNHEALTHY_SECONDS": "20", "RECOVERY_SECONDS": "180"})
	}, NodeTimeout(25*time.Minute))

	It("has its host rebooted", func(ctx context.Context) {
		victim := w.workers(ctx)[0]
		step("remedy: kubelet stopped, host asked to reboot", func() {
			shell(ctx, victim.box, "systemctl stop kubelet")
			Eventually(func() []infrav1.ElementalRemediation { return w.remediations(ctx) }).WithTimeout(remediationTimeout).
				Should(ConsistOf(HaveField("Status.Reboots", BeEquivalentTo(1))))
		})
		step("remedy: host rebooted, Machine healthy, remediation gone", func() {
			Eventually(func() string { return victim.bootID(ctx) }).WithTimeout(remediationTimeout).ShouldNot(Or(Equal(victim.boot), BeEmpty()))
			Eventually(func() []infrav1.ElementalRemediation { return w.remediations(ctx) }).WithTimeout(remediationTimeout).Should(BeEmpty())
		})
		w.expectNodes(ctx, 3)
		Expect(w.machines(ctx)).To(HaveKey(victim.machine.UID))
	}, SpecTimeout(30*time.Minute))

	It("is not remediated while its site is offline", func(ctx context.Context) {
		branch, before := w.workers(ctx), w.machines(ctx)
		for _, victim := range branch {
			kubectl(ctx, "--namespace", namespace, "label", "elementalhost", victim.host, infrav1.DefaultFailureDomainLabel+"=branch")
			Expect(victim.box.Disconnect(ctx)).To(Succeed())
		}
		step("remedy: both workers disconnected, site offline", func() {
			Eventually(func() []infrav1.ElementalRemediation { return w.remediations(ctx) }).WithTimeout(remediationTimeout).
				Should(And(Not(BeEmpty()), HaveEach(WithTransform(reason, Equal(infrav1.SiteDarkReason)))))
		})
		// Longer than the timeout of a single disconnected host.
		Consistently(func(g Gomega) {
			g.Expect(w.remediations(ctx)).To(HaveEach(WithTransform(reason, Equal(infrav1.SiteDarkReason))))
			g.Expect(w.machines(ctx)).To(Equal(before))
		}).WithTimeout(200 * time.Second).WithPolling(5 * time.Second).Should(Succeed())
		step("remedy: network back, Machines healthy, remediations gone", func() {
			for _, victim := range branch {
				Expect(victim.box.Connect(ctx)).To(Succeed())
			}
			Eventually(func() []infrav1.ElementalRemediation { return w.remediations(ctx) }).WithTimeout(remediationTimeout).Should(BeEmpty())
		})
		w.expectNodes(ctx, 3)
		Expect(w.machines(ctx)).To(Equal(before))
		for _, victim := range branch {
			Expect(victim.bootID(ctx)).To(Equal(victim.boot), "no host was rebooted")
			kubectl(ctx, "--namespace", namespace, "label", "elementalhost", victim.host, infrav1.DefaultFailureDomainLabel+"-")
		}
	}, SpecTimeout(40*time.Minute))

	It("is replaced if a reboot does not help, and its host becomes available again", func(ctx context.Context) {
		victim := w.workers(ctx)[0]
		step("remedy: kubelet disabled, Machine replaced", func() {
			shell(ctx, victim.box, "systemctl disable --now kubelet")
			Eventually(func() bool {
				err := management.Get(ctx, client.ObjectKeyFromObject(&victim.machine), &clusterv1.Machine{})
				return apierrors.IsNotFound(err)
			}).WithTimeout(2 * remediationTimeout).Should(BeTrue())
			Expect(victim.bootID(ctx)).NotTo(Equal(victim.boot), "a reboot was tried")
		})
		step("remedy: another Machine in its place", func() { w.expectRunning(ctx, 3) })
		step("remedy: remediation gone", func() {
			Eventually(func() []infrav1.ElementalRemediation { return w.remediations(ctx) }).WithTimeout(resetTimeout).Should(BeEmpty())
		})
		step("remedy: cluster deleted, all hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(50*time.Minute))
})

// applyHealthCheck applies the release's example of MachineHealthChecks for the cluster.
func (w workload) applyHealthCheck(ctx context.Context, values map[string]string) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "templates", "machine-health-check.yaml"))
	Expect(err).NotTo(HaveOccurred())
	values = maps.Clone(values)
	values["CLUSTER_NAME"], values["NAMESPACE"] = w.Name, w.namespace()
	variable := regexp.MustCompile(`\$\{([A-Z_]+)(?::=([^}]*))?\}`)
	apply(ctx, variable.ReplaceAllStringFunc(string(text), func(match string) string {
		parts := variable.FindStringSubmatch(match)
		if value, given := values[parts[1]]; given {
			return value
		}
		return parts[2]
	}))
}

// unhealthyWorker is a worker that a spec makes unhealthy, as it was before.
type unhealthyWorker struct {
	machine clusterv1.Machine
	// host is the ElementalHost's name.
	host, boot string
	box        *engine.Host
}

// bootID returns "" while the host is down.
func (u unhealthyWorker) bootID(ctx context.Context) string {
	id, err := u.box.BootID(ctx)
	if err != nil {
		return ""
	}
	return id
}

func (w workload) workers(ctx context.Context) []unhealthyWorker {
	GinkgoHelper()
	var out []unhealthyWorker
	for _, host := range elementalHosts(ctx) {
		if host.Spec.Claim == nil || host.Spec.Claim.ClusterName != w.Name || host.Spec.Claim.Phase != infrav1.ClaimBound {
			continue
		}
		u := unhealthyWorker{host: host.Name, box: boxOf(&host)}
		Expect(management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: host.Spec.Claim.MachineName}, &u.machine)).To(Succeed())
		if _, controlPlane := u.machine.Labels[clusterv1.MachineControlPlaneLabel]; controlPlane {
			continue
		}
		u.boot = u.bootID(ctx)
		out = append(out, u)
	}
	Expect(out).To(HaveLen(w.Workers))
	return out
}

func (w workload) remediations(ctx context.Context) []infrav1.ElementalRemediation {
	GinkgoHelper()
	list := &infrav1.ElementalRemediationList{}
	Expect(management.List(ctx, list, w.inCluster()...)).To(Succeed())
	return list.Items
}

// reason returns the reason of a remediation's Ready condition.
func reason(r infrav1.ElementalRemediation) string {
	if c := meta.FindStatusCondition(r.Status.Conditions, infrav1.ReadyCondition); c != nil {
		return c.Reason
	}
	return ""
}

// machines returns the names of the cluster's Machines by UID.
func (w workload) machines(ctx context.Context) map[types.UID]string {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, w.inCluster()...)).To(Succeed())
	out := map[types.UID]string{}
	for _, m := range list.Items {
		out[m.UID] = m.Name
	}
	return out
}
