package cluster_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// moveByDeletion deletes the Machine of h1, which moves the endpoint to h2.
func (f *fleet) moveByDeletion() {
	f.T.Helper()
	f.Delete(f.machines["h1"])
	f.reconcileUntilStable()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.2"))
}

func TestKubeconfigsAreUpdated(t *testing.T) {
	f := newFleet(t)
	f.kubeconfig("c-user-kubeconfig", "c", "https://10.0.0.1:6443/path?x=1")
	f.moveByDeletion()
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
	f.Expect(f.server("c-user-kubeconfig")).To(Equal("https://10.0.0.2:6443/path?x=1"))
	// A user restores an old one during the move.
	former := &corev1.Secret{ObjectMeta: f.Meta("c-kubeconfig")}
	f.Delete(former)
	f.kubeconfig("c-kubeconfig", "c", "https://10.0.0.1:6443")
	f.reconcileUntilStable()
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
}

// Only kubeconfigs of this cluster that name a former endpoint are changed.
func TestOtherKubeconfigsStay(t *testing.T) {
	for name, tc := range map[string]struct{ secret, cluster, server string }{
		"another server":   {"c-user-kubeconfig", "c", "https://proxy.example.org:6443"},
		"another port":     {"c-user-kubeconfig", "c", "https://10.0.0.1:443"},
		"a longer address": {"c-user-kubeconfig", "c", "https://10.0.0.11:6443"},
		// Its kubeconfig has the name of this cluster's user kubeconfig.
		"a cluster named c-user": {"c-user-kubeconfig", "c-user", "https://10.0.0.1:6443"},
		"another name":           {"d-kubeconfig", "c", "https://10.0.0.1:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.kubeconfig(tc.secret, tc.cluster, tc.server)
			before := &corev1.Secret{ObjectMeta: f.Meta(tc.secret)}
			f.Refresh(before)
			f.moveByDeletion()
			f.Expect(f.server(tc.secret)).To(Equal(tc.server))
			after := &corev1.Secret{ObjectMeta: f.Meta(tc.secret)}
			f.Refresh(after)
			f.Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))
		})
	}
}

func TestInvalidKubeconfigIsReported(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, &corev1.Secret{ObjectMeta: f.Meta("c-kubeconfig")}, func(s *corev1.Secret) { s.Data["value"] = []byte("token: hush") })
	f.moveByDeletion()
	c := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointFollowedCondition, no, infrav1.EndpointMovingReason)
	f.Expect(c.Message).To(And(ContainSubstring("Secret c-kubeconfig"), Not(ContainSubstring("hush"))))
}

// Cluster API copies the endpoint only once, and a user may restore an old one.
func TestClusterGetsTheCurrentEndpoint(t *testing.T) {
	f := newFleet(t)
	f.moveByDeletion()
	f.converge()
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.ControlPlaneEndpoint.Host = "10.0.0.1" })
	f.reconcileUntilStable()
	f.Expect(f.cluster.Spec.ControlPlaneEndpoint.Host).To(Equal("10.0.0.2"))
}

// Above the limit, former endpoints that a host still uses are kept.
func TestFormerEndpointsAreLimited(t *testing.T) {
	f := newFleet(t)
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		for i := range 16 {
			c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints = append(c.Spec.ControlPlaneEndpointPolicy.FormerEndpoints,
				infrav1.FormerEndpoint{Host: fmt.Sprintf("10.9.0.%d", i), Port: 6443, HostName: "gone"})
		}
	})
	f.stop("h4")
	f.Report(f.hostNamed("h4"), func(s *infrav1.ElementalHostStatus) { s.Endpoint.Kubeconfigs = "10.9.0.15:6443" })
	f.converge()
	f.requestMove("h3")
	f.reconcileUntilStable()
	f.expectEndpoint(3)
	var hosts []string
	for _, former := range f.infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints {
		hosts = append(hosts, former.Host)
	}
	f.Expect(hosts).To(HaveLen(16))
	f.Expect(hosts[0]).To(Equal("10.0.0.1"))
	f.Expect(hosts).To(ContainElement("10.9.0.15"))
	f.Expect(hosts).NotTo(ContainElement("10.9.0.14"))
}
