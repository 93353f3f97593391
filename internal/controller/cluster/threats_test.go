package cluster_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// Hosts that are not approved can't keep a cluster from its virtual IP address.
func TestThreat36_AddressesOfStrangers(t *testing.T) {
	const address = "10.20.13.100"
	f := newFixture(t, kubeadm, virtual(address))
	f.controlPlane(nil)
	f.host("a", "10.20.13.1", nic("eth0", "10.20.13.1/24"))
	f.Host("b", nic("eth0", "10.20.14.1/24"), having(address), pending)
	f.Host("c", nic("eth0", "10.20.14.1/24"), having(address), rejected)
	f.reconcileUntilStable()
	f.Expect(f.endpoint().Host).To(Equal(address))
	condition := f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, yes, infrav1.EndpointFromVIPReason)
	f.Expect(condition.Message).To(Equal("A virtual IP address"), "their interfaces are not mentioned")
}

// A move changes only kubeconfigs of its own cluster, and only servers that are former
// endpoints.
func TestThreat37_KubeconfigsOfOthers(t *testing.T) {
	f := newFleet(t)
	for name, of := range map[string]struct{ cluster, server string }{
		// The kubeconfig of Cluster c-user has the name of c's user kubeconfig.
		"c-user-kubeconfig": {"c-user", "https://10.0.0.1:6443"},
		"d-kubeconfig":      {"d", "https://10.0.0.1:6443"},
		"c-admin":           {"c", "https://10.0.0.1:6443"},
	} {
		f.kubeconfig(name, of.cluster, of.server)
	}
	before := &corev1.SecretList{}
	f.Expect(f.Admin.List(f.Ctx, before)).To(Succeed())
	f.moveByDeletion()
	f.Expect(f.server("c-kubeconfig")).To(Equal("https://10.0.0.2:6443"))
	for i := range before.Items {
		secret := &before.Items[i]
		if secret.Namespace != f.Namespace || secret.Name == "c-kubeconfig" {
			continue
		}
		version := secret.ResourceVersion
		f.Refresh(secret)
		f.Expect(secret.ResourceVersion).To(Equal(version), secret.Name)
	}
	other := newFleet(t)
	other.kubeconfig("c-user-kubeconfig", "c", "https://proxy.example.org:6443")
	other.moveByDeletion()
	other.Expect(other.server("c-user-kubeconfig")).To(Equal("https://proxy.example.org:6443"))
}

// runWith makes the cluster a running one that a user gave the virtual IP address. It returns
// the control-plane host.
func (f *fixture) runWith(address, subnet string) *infrav1.ElementalHost {
	f.T.Helper()
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		virtual(address, func(v *infrav1.EndpointVIP) { v.Distribution = infrav1.DistributionKubeadm })(nil, c)
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: address, Port: 6443}
	})
	controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = new(true) })
	f.controlPlane(nil)
	return f.host("a", "", nic("eth0", subnet), bound(infrav1.RoleControlPlane))
}

// byAge returns two clusters that want the virtual IP address. The older one precedes by its
// age, or by its name if both are of the same second.
func byAge(t *testing.T, address string) (older, younger *fixture) {
	t.Helper()
	older, younger = newFixture(t, kubeadm, virtual(address)), newFixture(t, kubeadm, virtual(address))
	if !older.infra.CreationTimestamp.Before(&younger.infra.CreationTimestamp) && older.Namespace > younger.Namespace {
		return younger, older
	}
	return older, younger
}

// announces reports whether the host is told to announce its cluster's address.
func (f *fixture) announces(h *infrav1.ElementalHost) bool {
	f.T.Helper()
	f.Refresh(f.infra)
	return len(plan.For(h, plan.Site{}, plan.Cluster{Infra: f.infra}).Desired.Files) > 0
}

// A running cluster can't take the address of another, however old it is and whatever its
// user writes into it: its hosts are not told to announce the address.
func TestThreat41_RunningClusterTakesAnAddress(t *testing.T) {
	const address = "10.20.15.100"
	thief := newFixture(t, kubeadm, virtual(address))
	host := thief.runWith(address, "10.20.15.2/24")
	owner := newFixture(t, kubeadm, virtual(address))
	owner.controlPlane(nil)
	owner.host("a", "10.20.15.1", nic("eth0", "10.20.15.1/24"))
	controllertest.Change(thief.Fixture, thief.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint, c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpoint{}, infrav1.ControlPlaneEndpointPolicy{}
	})
	ownerHasIt := func() {
		t.Helper()
		owner.reconcileUntilStable()
		owner.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
		owner.Expect(owner.infra.Status.VirtualIP).To(Equal(address))
	}
	// The owner's name may come later, and both are created within a second.
	controllertest.ChangeStatus(owner.Fixture, owner.infra, func(c *infrav1.ElementalCluster) { c.Status.VirtualIP = address })
	ownerHasIt()
	controllertest.Change(thief.Fixture, thief.infra, func(c *infrav1.ElementalCluster) {
		virtual(address, func(v *infrav1.EndpointVIP) { v.Distribution = infrav1.DistributionKubeadm })(nil, c)
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: address, Port: 6443}
	})
	thief.Expect(thief.announces(host)).To(BeFalse(), "before the manager has checked the address")
	thief.reconcileUntilStable()
	thief.expectCondition(no, infrav1.VIPInUseReason, "10.20.15.100 is the endpoint of ElementalCluster "+owner.Namespace+"/c")
	thief.Expect(thief.announces(host)).To(BeFalse())
	ownerHasIt()
	owner.Delete(owner.infra)
	owner.reconcileUntilStable()
	thief.reconcileUntilStable()
	thief.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	thief.Expect(thief.announces(host)).To(BeTrue())
}

// A cluster that waits for hosts keeps its turn: a younger one does not get the address by
// giving it as its endpoint.
func TestThreat41_EndpointInSpecIsNoPrecedence(t *testing.T) {
	const address = "10.20.16.100"
	older, younger := byAge(t, address)
	older.controlPlane(nil)
	younger.controlPlane(nil)
	younger.host("a", "10.20.16.2", nic("eth0", "10.20.16.2/24"))
	controllertest.Change(younger.Fixture, younger.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: address, Port: 6443}
	})
	younger.reconcileUntilStable()
	younger.expectCondition(no, infrav1.VIPInUseReason, older.Namespace)
	older.host("a", "10.20.16.1", nic("eth0", "10.20.16.1/24"))
	older.reconcileUntilStable()
	older.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	older.Expect(older.endpoint().Host).To(Equal(address))
	younger.reconcileUntilStable()
	younger.expectCondition(no, infrav1.VIPInUseReason, older.Namespace)
}

// A running cluster can't take the address of a host that is the endpoint of an older running
// cluster.
func TestThreat41_AddressOfAnEndpointHost(t *testing.T) {
	const address = "10.20.18.100"
	owner, thief := byAge(t, address)
	controllertest.Change(owner.Fixture, owner.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: address, Port: 6443}
		c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
			Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: "h1", ChosenAt: metav1.NewTime(longAgo)},
		}
	})
	owner.host("h1", address, bound(infrav1.RoleControlPlane))
	host := thief.runWith(address, "10.20.18.2/24")
	thief.reconcileUntilStable()
	thief.expectCondition(no, infrav1.VIPInUseReason, owner.Namespace)
	thief.Expect(thief.announces(host)).To(BeFalse())
}

// A move or restore of the management cluster loses status. The cluster that runs with the
// address gets it again, not an older one that only wants it.
func TestThreat41_AddressAfterARestore(t *testing.T) {
	const address = "10.20.17.100"
	waiting, running := byAge(t, address)
	waiting.controlPlane(nil)
	waiting.host("a", "10.20.17.1", nic("eth0", "10.20.17.1/24"))
	host := running.runWith(address, "10.20.17.2/24")
	waiting.reconcileUntilStable()
	waiting.expectCondition(no, infrav1.VIPInUseReason, running.Namespace)
	running.reconcileUntilStable()
	running.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	running.Expect(running.announces(host)).To(BeTrue())
	waiting.reconcileUntilStable()
	waiting.expectCondition(no, infrav1.VIPInUseReason, running.Namespace)
}

// Hosts that are not admitted make no failure domain: the control plane would create
// Machines there that never get a host.
func TestThreat57_FailureDomainsOfStrangers(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	f.host("honest", "10.0.0.1", labelled(zone, "a"))
	for name, change := range map[string]func(*infrav1.ElementalHost){"pending": pending, "rejected": rejected, "locked": locked, "fenced": fenced} {
		f.host(name, "10.0.0.2", labelled(zone, name), change)
	}
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+a"}))
}

// A cluster whose image of kube-vip the manager does not allow gets no endpoint, and its
// condition says what to do.
func TestThreat51_ImageNotAllowed(t *testing.T) {
	const address = "10.20.19.100"
	f := newFixture(t, kubeadm, virtual(address, func(v *infrav1.EndpointVIP) { v.Image = "evil.example.com/kube-vip:v1" }))
	f.controlPlane(nil)
	f.host("a", "10.20.19.1", nic("eth0", "10.20.19.1/24"))
	policy, err := kubevip.NewImagePolicy([]string{"ghcr.io/kube-vip"}, false)
	f.Expect(err).NotTo(HaveOccurred())
	reconcile := func() {
		t.Helper()
		for range 3 {
			f.reconciler.Images = policy
			f.reconcile()
		}
	}
	reconcile()
	f.expectCondition(no, infrav1.ImageNotAllowedReason, "Image evil.example.com/kube-vip:v1 is in none of the repositories that the manager allows: ghcr.io/kube-vip. "+
		"Set spec.controlPlaneEndpointPolicy.vip.image")
	f.Expect(f.endpoint().Host).To(BeEmpty())
	f.Expect(f.infra.Status.VirtualIP).To(BeEmpty())
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.ControlPlaneEndpointPolicy.VIP.Image = "" })
	reconcile()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	f.Expect(f.endpoint().Host).To(Equal(address))
}
