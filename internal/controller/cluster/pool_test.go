package cluster_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// pooled asks for an address from a pool.
func pooled(name string) func(*clusterv1.Cluster, *infrav1.ElementalCluster) {
	return func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeVIP, VIP: &infrav1.EndpointVIP{
			AddressFromPool: &infrav1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: name},
		}}
	}
}

// addressClaim reads the endpoint's IPAddressClaim; nil when there is none.
func (f *fixture) addressClaim() *ipamv1.IPAddressClaim {
	f.T.Helper()
	c := &ipamv1.IPAddressClaim{ObjectMeta: f.Meta("c-endpoint")}
	if !f.Exists(c) {
		return nil
	}
	return c
}

// serve gives the claim an address as an IPAM provider does.
func (f *fixture) serve(address string) {
	f.T.Helper()
	c := f.addressClaim()
	f.Expect(c).NotTo(BeNil())
	f.Create(&ipamv1.IPAddress{ObjectMeta: f.Meta("c-endpoint"), Spec: ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: c.Name}, PoolRef: c.Spec.PoolRef, Address: address, Prefix: new(int32(24)),
	}})
	controllertest.ChangeStatus(f.Fixture, c, func(c *ipamv1.IPAddressClaim) { c.Status.AddressRef.Name = "c-endpoint" })
}

func TestAddressFromPool(t *testing.T) {
	f := newFixture(t, kubeadm, pooled("edge"))
	f.controlPlane(nil)
	f.host("a", "10.22.1.1", nic("eth0", "10.22.1.1/24"))
	f.settle()
	f.expectEndpoint(no, infrav1.WaitingForAddressReason, "Waiting for an address from InClusterIPPool edge; no IPAM provider has said anything yet")
	f.Expect(f.infra.Status.Initialization.Provisioned).To(BeNil())

	c := f.addressClaim()
	f.Expect(c.Spec.PoolRef).To(Equal(ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "edge"}))
	f.Expect(c.Spec.ClusterName).To(Equal("c"))
	f.Expect(c.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c"))
	f.Expect(metav1.IsControlledBy(c, f.infra)).To(BeTrue(), "moved with the cluster, and gone with it")

	controllertest.ChangeStatus(f.Fixture, c, func(c *ipamv1.IPAddressClaim) {
		c.Status.Conditions = []metav1.Condition{{
			Type: ipamv1.IPAddressClaimReadyCondition, Status: no, Reason: ipamv1.IPAddressClaimReadyPoolExhaustedReason,
			Message: "none of 8 addresses is free", LastTransitionTime: metav1.NewTime(f.Clock.Now()),
		}}
	})
	f.settle()
	f.expectEndpoint(no, infrav1.WaitingForAddressReason, "from InClusterIPPool edge: PoolExhausted: none of 8 addresses is free")
	f.Client.Forget()
	f.settle()
	f.Expect(f.Client.Writes()).To(BeEmpty())

	f.serve("10.22.1.100")
	f.settle()
	f.expectEndpoint(yes, infrav1.EndpointFromVIPReason, "")
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "10.22.1.100", Port: 6443}))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
}

func TestAddressIsGivenBackWithTheCluster(t *testing.T) {
	for name, moved := range map[string]bool{"deleted": false, "moved": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm, pooled("edge"))
			f.controlPlane(nil)
			f.settle()
			if moved {
				controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
					c.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
				})
			}
			f.Delete(f.infra)
			f.settle()
			f.Expect(f.Exists(f.infra)).To(BeFalse())
			f.Expect(f.addressClaim() != nil).To(Equal(moved), "after a move it is the other side's")
		})
	}
}

func TestSomebodyElsesClaimIsLeftAlone(t *testing.T) {
	f := newFixture(t, kubeadm, pooled("edge"))
	f.controlPlane(nil)
	f.Create(&ipamv1.IPAddressClaim{ObjectMeta: f.Meta("c-endpoint"), Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "other"},
	}})
	f.serve("10.22.2.100")
	f.settle()
	f.expectEndpoint(no, infrav1.WaitingForAddressReason, "somebody else's")
	f.Delete(f.infra)
	f.settle()
	f.Expect(f.addressClaim()).NotTo(BeNil())
}

func TestAnotherPoolBeforeThereIsAnAddress(t *testing.T) {
	f := newFixture(t, kubeadm, pooled("small"))
	f.controlPlane(nil)
	f.settle()
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.VIP.AddressFromPool.Name = "big"
	})
	f.settle()
	f.Expect(f.addressClaim().Spec.PoolRef.Name).To(Equal("big"))
	f.expectEndpoint(no, infrav1.WaitingForAddressReason, "InClusterIPPool big")
}

// After a move or a restore IPAM starts anew; the endpoint is what it was.
func TestEndpointOutlivesWhatIsKnownOfItsAddress(t *testing.T) {
	f := newFixture(t, kubeadm, pooled("edge"), func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.22.3.100", Port: 6443}
	})
	f.controlPlane(nil)
	f.host("a", "10.22.3.1", nic("eth0", "10.22.3.1/24"))
	f.settle()
	f.expectEndpoint(yes, infrav1.EndpointFromVIPReason, "")
	f.serve("10.22.3.101")
	f.settle()
	f.expectEndpoint(no, infrav1.WaitingForAddressReason, "The endpoint is 10.22.3.100, but its IPAddressClaim was given 10.22.3.101")
	f.Expect(f.endpoint().Host).To(Equal("10.22.3.100"))
}

func TestAddressesThatAreNone(t *testing.T) {
	for name, tc := range map[string]struct {
		address, claim, message string
	}{
		"no address":      {"a.b", "c-endpoint", "holds no IP address"},
		"another claim's": {"10.22.4.100", "d-endpoint", "belongs to IPAddressClaim d-endpoint"},
		"not there":       {"", "", "does not exist yet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm, pooled("edge"))
			f.controlPlane(nil)
			f.host("a", "10.22.4.1", nic("eth0", "10.22.4.1/24"))
			f.settle()
			c := f.addressClaim()
			if tc.address != "" {
				f.Create(&ipamv1.IPAddress{ObjectMeta: f.Meta("x"), Spec: ipamv1.IPAddressSpec{
					ClaimRef: ipamv1.IPAddressClaimReference{Name: tc.claim}, PoolRef: c.Spec.PoolRef, Address: tc.address, Prefix: new(int32(24)),
				}})
			}
			controllertest.ChangeStatus(f.Fixture, c, func(c *ipamv1.IPAddressClaim) { c.Status.AddressRef.Name = "x" })
			f.settle()
			f.expectEndpoint(no, infrav1.WaitingForAddressReason, tc.message)
			f.Expect(f.endpoint().Host).To(BeEmpty())
		})
	}
}

func TestPoolSurvivesCrashes(t *testing.T) {
	for _, moment := range []controllertest.Moment{controllertest.BeforeWrite, controllertest.AfterWrite} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
				f := newFixture(t, kubeadm, pooled("edge"))
				f.controlPlane(nil)
				f.host("a", "10.22.0.1", nic("eth0", "10.22.0.1/16"))
				f.Client.FailWrite(n, moment)
				f.settle()
				address := fmt.Sprintf("10.22.%d.%d", 100+len(moment), n)
				f.serve(address)
				f.settle()
				f.Expect(f.endpoint().Host).To(Equal(address))
			})
		}
	}
}
