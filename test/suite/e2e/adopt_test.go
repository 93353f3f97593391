//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// The steps of docs/adopting.md, by their titles.
const (
	stepLook        = "Look at the cluster"
	stepRegister    = "Make a registration"
	stepInstall     = "Install the agent on each host"
	stepDeclare     = "Declare the Nodes"
	stepApprove     = "Approve the hosts"
	stepAuthorities = "Bring the cluster's authorities into the management cluster"
	stepMake        = "Make the Cluster"
	stepLookAgain   = "Look at the cluster again"
	stepRelease     = "Let Cluster API reset hosts"
)

var _ = Describe("A cluster that was made by hand", Ordered, Label("adopt"), func() {
	w := workload{lab.Cluster{Name: "shop", ControlPlanes: 1, Workers: 1}}
	var a *adoption

	BeforeAll(func(ctx context.Context) {
		a = startAdoption(ctx, w)
		step("adopt: cluster made by kubeadm", func() { a.makeByHand(ctx) })
		a.remember(ctx)
		for _, title := range []string{stepLook, stepRegister, stepInstall, stepDeclare, stepApprove} {
			a.take(ctx, title)
		}
		step("adopt: enrolment, declaration and approval have changed nothing", func() { a.expectUntouched(ctx) })
	}, NodeTimeout(20*time.Minute))

	It("is left alone if it has other authorities than the Cluster", func(ctx context.Context) {
		step("adopt: Cluster made without the authorities, refused", func() {
			a.followStep(ctx, stepMake)
			a.expectRefused(ctx, "Secret <cluster>-ca has another authority")
		})
		step("adopt: refused Cluster deleted, hosts as before", func() { a.expectGivenBack(ctx) })
	}, SpecTimeout(15*time.Minute))

	It("is left alone if its hosts are declared in the wrong roles", func(ctx context.Context) {
		step("adopt: hosts declared in the wrong roles, refused", func() {
			a.declare(ctx, a.controlPlane, infrav1.AdoptedWorker)
			a.declare(ctx, a.worker, infrav1.AdoptedControlPlane)
			a.followStep(ctx, stepAuthorities)
			a.run(ctx, fmt.Sprintf("export CONTROL_PLANE_ENDPOINT='host: %s, port: 6443'\n", a.controlPlane.Address)+a.replace(a.script(stepMake), a.replacements(ctx)))
			a.expectRefused(ctx, "set spec.adoption.role of the ElementalHost to Worker")
		})
		step("adopt: refused Cluster deleted, hosts as before", func() {
			a.expectGivenBack(ctx)
			a.followStep(ctx, stepDeclare)
		})
	}, SpecTimeout(15*time.Minute))

	It("is taken over as it runs", func(ctx context.Context) {
		calls := callOn(ctx, a.controlPlane, versionPath, patientTimeout)
		for _, title := range []string{stepAuthorities, stepMake, stepLookAgain} {
			a.take(ctx, title)
		}
		step("adopt: 1+1 running", func() { w.expectRunning(ctx, 2) })
		w.expectDescribedClean(ctx)
		step("adopt: nothing has changed", func() {
			a.expectUntouched(ctx)
			calls.stop()
			Expect(calls.outages()).To(BeEmpty(), "the API server always answers")
			for _, name := range a.names {
				Expect(bootstrapped(ctx)).NotTo(ContainElement(name), "bootstrap data was sent to no adopted host")
			}
		})
		for _, host := range w.claimedHosts(ctx) {
			Expect(host.Spec.Adoption).To(BeNil(), host.Name)
			Expect(host.Spec.Claim.Adoption).To(BeNil(), host.Name)
		}
		Expect(a.replaced).To(HaveLen(len(a.replacements(ctx))), "each replacement replaces something")
	}, SpecTimeout(20*time.Minute))

	It("grows, and loses Machines, like any other cluster", func(ctx context.Context) {
		step("adopt: second worker on a free host", func() {
			w.scale(ctx, 2)
			w.expectRunning(ctx, 3)
			sent := bootstrapped(ctx)
			Expect(sent).NotTo(BeEmpty(), "the audit log names hosts that get bootstrap data")
			for _, name := range a.names {
				Expect(sent).NotTo(ContainElement(name))
			}
			a.expectSameHosts(ctx)
		})
		a.take(ctx, stepRelease)
		boot := bootOf(ctx, a.worker)
		step("adopt: Machine of the adopted worker replaced, its host reset", func() {
			machine := w.machineOn(ctx, a.names[a.worker])
			Expect(management.Delete(ctx, machine)).To(Succeed())
			Eventually(func(g Gomega) {
				now, err := a.worker.BootID(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(now).NotTo(Equal(boot))
				g.Expect(w.machines(ctx)).NotTo(HaveKey(machine.UID))
			}).WithTimeout(resetTimeout).Should(Succeed())
			w.expectRunning(ctx, 3)
		})
	}, SpecTimeout(20*time.Minute))

	It("releases its hosts", func(ctx context.Context) {
		step("adopt: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
		step("adopt: hosts enrolled as the others", func() { a.returnHosts(ctx) })
	}, SpecTimeout(15*time.Minute))
})

// declare declares the Node of a host.
func (a *adoption) declare(ctx context.Context, box *engine.Host, role infrav1.AdoptedRole) {
	GinkgoHelper()
	patch(ctx, hostOf(ctx, box), fmt.Sprintf(`{"spec":{"adoption":{"clusterName":%q,"role":%q}}}`, a.Name, role))
}

// expectRefused waits until an ElementalMachine of the cluster says why the Node is not taken over.
func (a *adoption) expectRefused(ctx context.Context, why string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		machines := &infrav1.ElementalMachineList{}
		g.Expect(management.List(ctx, machines, a.inCluster()...)).To(Succeed())
		var said string
		for _, machine := range machines.Items {
			said += conditions(machine.Status.Conditions)
		}
		g.Expect(said).To(ContainSubstring(why))
	}).WithTimeout(3 * time.Minute).Should(Succeed())
	for _, machine := range a.machines(ctx) {
		fmt.Println(a.run(ctx, "kubectl elemental explain machine "+machine).Stdout)
	}
}

// expectGivenBack deletes the Cluster before anything was taken over.
func (a *adoption) expectGivenBack(ctx context.Context) {
	GinkgoHelper()
	a.delete(ctx)
	for _, box := range a.boxes() {
		host := hostOf(ctx, box)
		Expect(host.Spec.Claim).To(BeNil(), host.Name)
		Expect(host.Spec.Adoption).NotTo(BeNil(), host.Name)
		Expect(meta.IsStatusConditionTrue(host.Status.Conditions, infrav1.ConnectedCondition)).To(BeTrue(), host.Name)
	}
	a.expectUntouched(ctx)
	for _, node := range a.nodeList(ctx) {
		Expect(node.Spec.ProviderID).To(BeEmpty(), node.Name)
	}
	// The authorities belong to the Cluster, also those that Cluster API has made.
	a.expectSeen(ctx, "kubectl get secrets", time.Minute, Not(ContainSubstring(a.Name+"-ca")))
}

// servedTo is what the audit log says about the host that bootstrap data was sent to.
var servedTo = regexp.MustCompile(`decision="BootstrapServed" .*ElementalHost="` + namespace + `/([^"]+)"`)

// bootstrapped returns the names of the hosts that bootstrap data was sent to.
func bootstrapped(ctx context.Context) (names []string) {
	GinkgoHelper()
	manager := managerDeployment(ctx)
	for _, match := range servedTo.FindAllStringSubmatch(kubectl(ctx, "--namespace", manager.Namespace, "logs", "deployment/"+manager.Name, "--tail", "-1"), -1) {
		names = append(names, match[1])
	}
	return names
}

func bootOf(ctx context.Context, box *engine.Host) string {
	GinkgoHelper()
	boot, err := box.BootID(ctx)
	Expect(err).NotTo(HaveOccurred())
	return boot
}

// machineOn returns the Machine of a Node.
func (w workload) machineOn(ctx context.Context, node string) *clusterv1.Machine {
	GinkgoHelper()
	list := &clusterv1.MachineList{}
	Expect(management.List(ctx, list, w.inCluster()...)).To(Succeed())
	for _, machine := range list.Items {
		if machine.Status.NodeRef.Name == node {
			return &machine
		}
	}
	Fail("no Machine has the Node " + node)
	return nil
}
