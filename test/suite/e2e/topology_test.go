//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	// releasedClass is the ClusterClass of the release, ownClass the one that is made from it.
	releasedClass, ownClass = "elemental-kubeadm", "shop"
	// classHosts is how many hosts an upgrade of the cluster needs: one for each of its Machines, and one to replace each.
	classHosts = 4
	// roleLabel is the label of hosts by which the class chooses them.
	roleLabel = "role"
	// filledFile is a file that the class has the bootstrap write.
	filledFile = "/etc/shop"
	// quietTime is longer than Cluster API's topology controller and this provider leave between a change and its effects.
	quietTime = 30 * time.Second
)

var _ = Describe("A cluster of a ClusterClass", Ordered, Label("topology"), func() {
	c := newClassCluster(lab.Cluster{Name: "shop-1", ControlPlanes: 1, Workers: 1})

	BeforeAll(func(ctx context.Context) { labelRoles(ctx, elementalHosts(ctx), 1) })

	It("runs on the hosts that the class chooses", func(ctx context.Context) {
		step("topology: cluster applied", func() { c.create(ctx) })
		step("topology: 1+1 running", func() { c.expectRunning(ctx, 2) })
		c.expectRoles(ctx)
		c.expectEndpoint(ctx)
		kubectl(ctx, "--namespace", c.namespace(), "annotate", "elementalcluster", c.objects(ctx).infra.Name, note+"=kept")
	}, SpecTimeout(30*time.Minute))

	It("keeps what others write, and nothing changes by itself", func(ctx context.Context) {
		before := c.objects(ctx)
		before.expectOwners()
		step("topology: at rest", func() {
			Consistently(func(g Gomega) { c.read(ctx, g).expectSame(g, before) }).WithTimeout(quietTime).Should(Succeed())
		})
		step("topology: everything applied once more", func() {
			c.change(ctx, func(topology *clusterv1.Topology) {
				topology.ControlPlane.Metadata.Annotations = map[string]string{note: "again"}
			})
			Eventually(func(g Gomega) {
				g.Expect(c.read(ctx, g).control.GetAnnotations()).To(HaveKeyWithValue(note, "again"))
			}).WithTimeout(time.Minute).Should(Succeed())
			c.objects(ctx).expectKept(Default, before)
		})
		step("topology: failure domains changed", func() {
			c.setVariable(ctx, "failureDomainLabel", `"topology.kubernetes.io/region"`)
			Eventually(func(g Gomega) {
				g.Expect(c.read(ctx, g).infra.Spec.FailureDomains.HostLabel).To(Equal("topology.kubernetes.io/region"))
			}).WithTimeout(time.Minute).Should(Succeed())
			Consistently(func(g Gomega) {
				after := c.read(ctx, g)
				after.expectKept(g, before)
				g.Expect(after.infra.Generation).To(Equal(before.infra.Generation+1), "one write")
				g.Expect(after.machines).To(Equal(before.machines), "no Machine is replaced")
			}).WithTimeout(quietTime).Should(Succeed())
		})
	}, SpecTimeout(15*time.Minute))

	It("gets another worker for other files", func(ctx context.Context) {
		before := c.objects(ctx)
		step("topology: files changed, worker replaced", func() {
			c.change(ctx, func(topology *clusterv1.Topology) {
				topology.Workers.MachineDeployments[0].Variables.Overrides = []clusterv1.ClusterVariable{{
					Name: "files", Value: apiextensionsv1.JSON{Raw: []byte(`[{"path":"` + filledFile + `","content":"open\n","permissions":"0640"}]`)},
				}}
			})
			c.expectReplaced(ctx, before, false)
			c.expectRunning(ctx, 2)
		})
		after := c.objects(ctx)
		after.expectKept(Default, before)
		Expect(after.infra.Generation).To(Equal(before.infra.Generation))
		Expect(after.controlPlanes()).To(Equal(before.controlPlanes()), "the value is that of the workers")
		c.expectRoles(ctx)
		for _, host := range c.claimedHosts(ctx) {
			if host.Spec.Claim.Role.IsControlPlane() {
				Expect(shell(ctx, boxOf(&host), "ls -d "+filledFile+" 2>&1 || true")).To(ContainSubstring("No such file"))
				continue
			}
			Expect(shell(ctx, boxOf(&host), "stat --format '%a %U' "+filledFile+"; cat "+filledFile)).To(Equal("640 root\nopen"))
		}
	}, SpecTimeout(30*time.Minute))

	It("moves to another class without replacing Machines", func(ctx context.Context) {
		before := c.objects(ctx)
		step("topology: moved to a class of one's own", func() {
			text, err := lab.ReleaseFile(ctx, hosts, "clusterclass-"+releasedClass+".yaml", map[string]string{"NAMESPACE": c.namespace()})
			Expect(err).NotTo(HaveOccurred())
			apply(ctx, strings.ReplaceAll(text, "name: "+releasedClass, "name: "+ownClass))
			Eventually(func() error {
				return c.tryChange(ctx, func(topology *clusterv1.Topology) { topology.ClassRef.Name = ownClass })
			}).WithTimeout(time.Minute).Should(Succeed())
			Eventually(func(g Gomega) {
				after := c.read(ctx, g)
				for _, object := range []client.Object{after.infra, after.control} {
					g.Expect(object.GetAnnotations()).To(HaveKeyWithValue(clusterv1.TemplateClonedFromNameAnnotation, ownClass))
				}
			}).WithTimeout(time.Minute).Should(Succeed())
		})
		step("topology: nothing replaced", func() {
			Consistently(func(g Gomega) {
				after := c.read(ctx, g)
				after.expectKept(g, before)
				g.Expect(after.infra.Generation).To(Equal(before.infra.Generation))
				g.Expect(after.machines).To(Equal(before.machines))
			}).WithTimeout(quietTime).Should(Succeed())
		})
	}, SpecTimeout(15*time.Minute))

	It("is deleted, and its hosts are available again", func(ctx context.Context) {
		step("topology: cluster deleted, hosts available", func() {
			c.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(20*time.Minute))
})

var _ = Describe("A cluster of a ClusterClass on bare hosts", func() {
	It("is upgraded by the version of its topology", Label("topology-upgrade"), func(ctx context.Context) {
		site := startBareSite(ctx, classHosts)
		labelRoles(ctx, site.hosts(ctx), classHosts/2)
		c := newClassCluster(site.workload("shop-2", 1, 1).Cluster)
		step("topology-upgrade: 1+1 running", func() {
			c.create(ctx)
			c.expectRunning(ctx, 2)
		})
		c.expectVersion(ctx, site.previous.Version)
		kubectl(ctx, "--namespace", c.namespace(), "annotate", "elementalcluster", c.objects(ctx).infra.Name, note+"=kept")
		before := c.objects(ctx)
		before.expectOwners()
		step("topology-upgrade: upgraded to "+site.current.Version, func() {
			c.change(ctx, func(topology *clusterv1.Topology) { topology.Version = site.current.Version })
			c.expectControlPlaneFirst(ctx, site.current.Version)
			c.expectReplaced(ctx, before, true)
			c.expectRunning(ctx, 2)
		})
		c.expectVersion(ctx, site.current.Version)
		c.expectRoles(ctx)
		c.expectEndpoint(ctx)
		after := c.objects(ctx)
		Expect(after.infra.UID).To(Equal(before.infra.UID))
		Expect(after.infra.Finalizers).To(Equal(before.infra.Finalizers))
		Expect(after.owners).To(Equal(before.owners))
		fmt.Printf("  the endpoint was %s, and is %s\n", before.infra.Spec.ControlPlaneEndpoint.Host, after.infra.Spec.ControlPlaneEndpoint.Host)
		step("topology-upgrade: at rest", func() {
			Consistently(func(g Gomega) { c.read(ctx, g).expectSame(g, after) }).WithTimeout(quietTime).Should(Succeed())
		})
		step("topology-upgrade: cluster deleted, hosts available", func() {
			c.delete(ctx)
			site.expectAvailable(ctx)
		})
	}, SpecTimeout(90*time.Minute))
})

// newClassCluster returns a cluster of the class of the release, whose Machines are on hosts of their roles.
func newClassCluster(c lab.Cluster) classCluster {
	c.Flavor = "topology"
	c.Variables = map[string]string{
		"CONTROL_PLANE_HOST_LABELS": roleLabel + ": control-plane", "WORKER_HOST_LABELS": roleLabel + ": worker",
	}
	return classCluster{workload{c}}
}

// labelRoles makes as many hosts as are said control planes, and the others workers, until the specs have ended.
func labelRoles(ctx context.Context, list []infrav1.ElementalHost, controlPlanes int) {
	GinkgoHelper()
	for i, host := range list {
		role := "worker"
		if i < controlPlanes {
			role = "control-plane"
		}
		kubectl(ctx, "--namespace", host.Namespace, "label", "elementalhost", host.Name, roleLabel+"="+role)
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, "--namespace", host.Namespace, "label", "elementalhost", host.Name, roleLabel+"-")
		})
	}
}

// expectRoles checks that each Machine is on a host of its role.
func (c classCluster) expectRoles(ctx context.Context) {
	GinkgoHelper()
	claimed := c.claimedHosts(ctx)
	Expect(claimed).To(HaveLen(c.ControlPlanes + c.Workers))
	for _, host := range claimed {
		want := "worker"
		if host.Spec.Claim.Role.IsControlPlane() {
			want = "control-plane"
		}
		Expect(host.Labels).To(HaveKeyWithValue(roleLabel, want), "host %s", host.Name)
	}
}

// expectEndpoint waits until the endpoint is the address of a host of the control plane.
func (c classCluster) expectEndpoint(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := c.read(ctx, g)
		g.Expect(now.infra.Spec.ControlPlaneEndpointPolicy.HostRef).NotTo(BeNil())
		host := &infrav1.ElementalHost{}
		name := now.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name
		g.Expect(management.Get(ctx, client.ObjectKey{Namespace: c.namespace(), Name: name}, host)).To(Succeed())
		g.Expect(host.Spec.Claim).NotTo(BeNil())
		g.Expect(host.Spec.Claim.Role.IsControlPlane()).To(BeTrue())
		g.Expect(host.Status.Addresses).To(ContainElement(HaveField("Address", now.infra.Spec.ControlPlaneEndpoint.Host)))
		g.Expect(now.cluster.Spec.ControlPlaneEndpoint.Host).To(Equal(now.infra.Spec.ControlPlaneEndpoint.Host))
	}).WithTimeout(time.Minute).Should(Succeed())
}

// expectControlPlaneFirst waits until the workers get a version, and checks that the control plane runs with it by then.
func (c classCluster) expectControlPlaneFirst(ctx context.Context, version string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := c.read(ctx, g)
		g.Expect(now.workers.Spec.Template.Spec.Version).To(Equal(version))
	}).WithTimeout(2 * provisionTimeout).Should(Succeed())
	for _, m := range c.machineList(ctx) {
		if _, isControlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]; isControlPlane {
			Expect(m.Spec.Version).To(Equal(version), "Machine %s", m.Name)
			Expect(meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineAvailableCondition)).To(BeTrue(), "Machine %s: %+v", m.Name, m.Status.Conditions)
		}
	}
}

// expectReplaced waits until other Machines have replaced the workers, and those of the control plane if controlPlane is true.
func (c classCluster) expectReplaced(ctx context.Context, before classObjects, controlPlane bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := c.read(ctx, g)
		g.Expect(now.machines).To(HaveLen(len(before.machines)))
		for uid, m := range before.machines {
			if controlPlane || !m.controlPlane {
				g.Expect(now.machines).NotTo(HaveKey(uid), "Machine %s", m.name)
			}
		}
	}).WithTimeout(2 * provisionTimeout).Should(Succeed())
}
