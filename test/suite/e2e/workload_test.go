//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
)

const (
	namespace = "default"
	// provisionTimeout bounds the provisioning of a cluster, resetTimeout the reset of a host. Both
	// are far above the usual times, because a busy machine is not a failure.
	provisionTimeout = 12 * time.Minute
	resetTimeout     = 5 * time.Minute
)

// workload is a cluster under test.
type workload struct {
	lab.Cluster
}

// namespace is the cluster's.
func (w workload) namespace() string {
	if w.Namespace != "" {
		return w.Namespace
	}
	return namespace
}

func (w workload) key() client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace(), Name: w.Name}
}

func (w workload) inCluster() []client.ListOption {
	return []client.ListOption{client.InNamespace(w.namespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: w.Name}}
}

// create applies a cluster as clusterctl generates it.
func (w workload) create(ctx context.Context) {
	GinkgoHelper()
	manifests, err := hosts.GenerateCluster(ctx, w.Cluster)
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, manifests)
}

// apply retries for a minute, because the webhooks of providers that were just installed may not
// be reachable yet.
func apply(ctx context.Context, manifests string) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := hosts.KubectlInput(ctx, strings.NewReader(manifests), "apply", "--filename", "-")
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
}

// expectEndpoint waits until the endpoint, which was blank, is the address of a host.
func (w workload) expectEndpoint(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		cluster := &infrav1.ElementalCluster{}
		g.Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
		g.Expect(cluster.Spec.ControlPlaneEndpointPolicy.HostRef).NotTo(BeNil())
		host := &infrav1.ElementalHost{}
		name := cluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name
		g.Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: name}, host)).To(Succeed())
		g.Expect(host.Status.Addresses).To(ContainElement(HaveField("Address", cluster.Spec.ControlPlaneEndpoint.Host)))
		g.Expect(cluster.Spec.ControlPlaneEndpoint.Port).To(BeEquivalentTo(6443))
	}).WithTimeout(time.Minute).Should(Succeed())
}

// expectRunning waits until the cluster is Available and has the given number of Machines, all
// Running, whose Nodes are Ready and have this provider's providerIDs.
func (w workload) expectRunning(ctx context.Context, machines int) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &clusterv1.MachineList{}
		g.Expect(management.List(ctx, list, w.inCluster()...)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(machines))
		for _, m := range list.Items {
			g.Expect(m.Status.Phase).To(Equal("Running"), "Machine %s", m.Name)
			g.Expect(m.Spec.ProviderID).To(HavePrefix("elemental://"+w.namespace()+"/"), "Machine %s", m.Name)
		}
	}).WithTimeout(provisionTimeout).Should(Succeed())
	Eventually(func(g Gomega) {
		cluster := &clusterv1.Cluster{}
		g.Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterAvailableCondition)).
			To(BeTrue(), "%+v", cluster.Status.Conditions)
	}).WithTimeout(provisionTimeout).Should(Succeed())
	w.expectNodes(ctx, machines)
}

// expectNodes compares the cluster's Nodes with Machines and hosts.
func (w workload) expectNodes(ctx context.Context, count int) {
	GinkgoHelper()
	c := w.client(ctx)
	Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(c.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(count))
		for _, node := range nodes.Items {
			g.Expect(ready(&node)).To(BeTrue(), "Node %s", node.Name)
			host := &infrav1.ElementalHost{}
			g.Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: node.Name}, host)).To(Succeed())
			g.Expect(node.Spec.ProviderID).To(Equal("elemental://" + w.namespace() + "/" + host.Name))
			g.Expect(host.Spec.Claim).NotTo(BeNil())
			g.Expect(host.Spec.Claim.ClusterName).To(Equal(w.Name))
		}
	}).WithTimeout(resetTimeout).Should(Succeed())
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// client returns a client for the workload cluster. It uses the kubeconfig that clusterctl gives
// to users.
func (w workload) client(ctx context.Context) client.Client {
	GinkgoHelper()
	content, err := hosts.Clusterctl(ctx, "get", "kubeconfig", w.Name, "--namespace", w.namespace())
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(GinkgoT().TempDir(), w.Name+".kubeconfig")
	Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return clientFor(path)
}

// expectDescribedClean waits until clusterctl describe shows no condition that is False or
// Unknown.
func (w workload) expectDescribedClean(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		out, err := hosts.Clusterctl(ctx, "describe", "cluster", w.Name, "--namespace", w.namespace())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(out).To(ContainSubstring(w.Name))
		g.Expect(out).NotTo(Or(ContainSubstring("False"), ContainSubstring("Unknown")), out)
		fmt.Println(out)
	}).WithTimeout(provisionTimeout).Should(Succeed())
}

// expectHostsDescribed checks that clusterctl describe can name the cluster's hosts.
func (w workload) expectHostsDescribed(ctx context.Context) {
	GinkgoHelper()
	out, err := hosts.Clusterctl(ctx, "describe", "cluster", w.Name, "--namespace", w.namespace(), "--echo", "--show-conditions", "all")
	Expect(err).NotTo(HaveOccurred())
	list := &infrav1.ElementalHostList{}
	Expect(management.List(ctx, list, client.InNamespace(w.namespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: w.Name})).To(Succeed())
	Expect(list.Items).NotTo(BeEmpty())
	for _, host := range list.Items {
		Expect(out).To(ContainSubstring("ElementalHost " + host.Name))
	}
}

// scale sets the replicas of the cluster's MachineDeployment.
func (w workload) scale(ctx context.Context, replicas int32) {
	GinkgoHelper()
	md := &clusterv1.MachineDeployment{}
	Expect(management.Get(ctx, client.ObjectKey{Namespace: w.namespace(), Name: w.Name + "-md-0"}, md)).To(Succeed())
	before := md.DeepCopy()
	md.Spec.Replicas = new(replicas)
	Expect(management.Patch(ctx, md, client.MergeFrom(before))).To(Succeed())
}

// delete deletes the cluster and waits until it is gone.
func (w workload) delete(ctx context.Context) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(management.Get(ctx, w.key(), cluster)).To(Succeed())
	Expect(management.Delete(ctx, cluster)).To(Succeed())
	Eventually(func() bool {
		return apierrors.IsNotFound(management.Get(ctx, w.key(), cluster))
	}).WithTimeout(provisionTimeout).Should(BeTrue())
}

// expectAllAvailable waits until every host was reset, is clean and is available again.
func expectAllAvailable(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list := &infrav1.ElementalHostList{}
		g.Expect(management.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		g.Expect(list.Items).To(HaveLen(len(hosts.Hosts())))
		for _, host := range list.Items {
			g.Expect(host.Spec.Claim).To(BeNil(), "host %s", host.Name)
			for _, condition := range []string{infrav1.CleanCondition, infrav1.AvailableCondition, infrav1.ReadyCondition} {
				g.Expect(meta.IsStatusConditionTrue(host.Status.Conditions, condition)).
					To(BeTrue(), "host %s: %s: %+v", host.Name, condition, host.Status.Conditions)
			}
		}
	}).WithTimeout(resetTimeout).Should(Succeed())
}
