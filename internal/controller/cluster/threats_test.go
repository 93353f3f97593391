package cluster_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Who was not let in keeps no cluster from its virtual IP address.
func TestThreat36_AddressesOfStrangers(t *testing.T) {
	const address = "10.20.13.100"
	f := newFixture(t, kubeadm, virtual(address))
	f.controlPlane(nil)
	f.host("a", "10.20.13.1", nic("eth0", "10.20.13.1/24"))
	f.Host("b", nic("eth0", "10.20.14.1/24"), having(address), pending)
	f.Host("c", nic("eth0", "10.20.14.1/24"), having(address), rejected)
	f.settle()
	f.Expect(f.endpoint().Host).To(Equal(address))
	is := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, yes, infrav1.EndpointFromVIPReason)
	f.Expect(is.Message).To(Equal("A virtual IP address"), "nor do they say which hosts can't have it")
}

// A move changes the kubeconfigs of its own cluster, and in those only a server
// that was the cluster's endpoint.
func TestThreat37_KubeconfigsOfOthers(t *testing.T) {
	f := newFleet(t)
	for name, of := range map[string]struct{ cluster, server string }{
		// Cluster c-user keeps its kubeconfig by the name of what c's users may have.
		"c-user-kubeconfig": {"c-user", "https://10.0.0.1:6443"},
		"d-kubeconfig":      {"d", "https://10.0.0.1:6443"},
		"c-admin":           {"c", "https://10.0.0.1:6443"},
	} {
		f.kubeconfig(name, of.cluster, of.server)
	}
	before := &corev1.SecretList{}
	f.Expect(f.Admin.List(f.Ctx, before)).To(Succeed())
	f.moved()
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
	for i := range before.Items {
		is := &before.Items[i]
		if is.Namespace != f.Namespace || is.Name == "c-kubeconfig" {
			continue
		}
		version := is.ResourceVersion
		f.Refresh(is)
		f.Expect(is.ResourceVersion).To(Equal(version), is.Name)
	}
	other := newFleet(t)
	other.kubeconfig("c-user-kubeconfig", "c", "https://proxy.example.org:6443")
	other.moved()
	other.Expect(other.server("c-user-kubeconfig")).To(Equal("https://proxy.example.org:6443"))
}
