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

// vipFromPool requests an address from an IP pool.
func vipFromPool(name string) func(*clusterv1.Cluster, *infrav1.ElementalCluster) {
	return func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeVIP, VIP: &infrav1.EndpointVIP{
			AddressFromPool: &infrav1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: name},
		}}
	}
}

// addressClaim returns the endpoint's IPAddressClaim, or nil.
func (f *fixture) addressClaim() *ipamv1.IPAddressClaim {
	f.T.Helper()
	c := &ipamv1.IPAddressClaim{ObjectMeta: f.Meta("c-endpoint")}
	if !f.Exists(c) {
		return nil
	}
	return c
}

// allocate allocates an address to the claim, as an IPAM provider does.
func (f *fixture) allocate(address string) {
	f.T.Helper()
	c := f.addressClaim()
	f.Expect(c).NotTo(BeNil())
	f.Create(&ipamv1.IPAddress{ObjectMeta: f.Meta("c-endpoint"), Spec: ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: c.Name}, PoolRef: c.Spec.PoolRef, Address: address, Prefix: new(int32(24)),
	}})
	controllertest.ChangeStatus(f.Fixture, c, func(c *ipamv1.IPAddressClaim) { c.Status.AddressRef.Name = "c-endpoint" })
}

func TestAddressFromPool(t *testing.T) {
	f := newFixture(t, kubeadm, vipFromPool("edge"))
	f.controlPlane(nil)
	f.host("a", "10.22.1.1", nic("eth0", "10.22.1.1/24"))
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.WaitingForAddressReason, "Waiting for an address from InClusterIPPool edge; no IPAM provider has reported a condition yet")
	f.Expect(f.infra.Status.Initialization.Provisioned).To(BeNil())

	c := f.addressClaim()
	f.Expect(c.Spec.PoolRef).To(Equal(ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "edge"}))
	f.Expect(c.Spec.ClusterName).To(Equal("c"))
	f.Expect(c.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c"))
	f.Expect(metav1.IsControlledBy(c, f.infra)).To(BeTrue(), "it is moved and deleted with the cluster")

	controllertest.ChangeStatus(f.Fixture, c, func(c *ipamv1.IPAddressClaim) {
		c.Status.Conditions = []metav1.Condition{{
			Type: ipamv1.IPAddressClaimReadyCondition, Status: no, Reason: ipamv1.IPAddressClaimReadyPoolExhaustedReason,
			Message: "none of 8 addresses is free", LastTransitionTime: metav1.NewTime(f.Clock.Now()),
		}}
	})
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.WaitingForAddressReason, "from InClusterIPPool edge: PoolExhausted: none of 8 addresses is free")
	f.Client.Forget()
	f.reconcileUntilStable()
	f.Expect(f.Client.Writes()).To(BeEmpty())

	f.allocate("10.22.1.100")
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "10.22.1.100", Port: 6443}))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
}

func TestAddressIsReleasedWithTheCluster(t *testing.T) {
	for name, moved := range map[string]bool{"deleted": false, "moved": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm, vipFromPool("edge"))
			f.controlPlane(nil)
			f.reconcileUntilStable()
			if moved {
				controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
					c.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
				})
			}
			f.Delete(f.infra)
			f.reconcileUntilStable()
			f.Expect(f.Exists(f.infra)).To(BeFalse())
			f.Expect(f.addressClaim() != nil).To(Equal(moved), "after a move the other management cluster has it")
		})
	}
}

// An address that hosts still announce must not be allocated to another cluster.
func TestAddressStaysWhileHostsAnnounceIt(t *testing.T) {
	phase := func(p infrav1.ClaimPhase) func(*infrav1.ElementalHost) {
		return func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = p }
	}
	for name, tc := range map[string]struct {
		role   infrav1.ClaimRole
		change func(*infrav1.ElementalHost)
		stays  bool
	}{
		"held":        {infrav1.RoleControlPlane, phase(infrav1.ClaimHeld), true},
		"no Machine":  {infrav1.RoleControlPlane, phase(infrav1.ClaimBound), true},
		"resetting":   {infrav1.RoleControlPlane, phase(infrav1.ClaimReleasing), true},
		"held worker": {infrav1.RoleWorker, phase(infrav1.ClaimHeld), false},
		"fenced": {infrav1.RoleControlPlane, func(h *infrav1.ElementalHost) {
			phase(infrav1.ClaimHeld)(h)
			h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"}
		}, false},
		"disconnected, to be reset": {infrav1.RoleControlPlane, func(h *infrav1.ElementalHost) {
			phase(infrav1.ClaimReleasing)(h)
			h.Status.Connection.State = infrav1.ConnectionDisconnected
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm, vipFromPool("edge"))
			f.controlPlane(nil)
			h := f.host("a", "10.22.5.1", nic("eth0", "10.22.5.1/24"))
			f.reconcileUntilStable()
			address := "10.22.5." + fmt.Sprint(100+len(name))
			f.allocate(address)
			f.reconcileUntilStable()
			f.Expect(f.endpoint().Host).To(Equal(address))
			controllertest.Change(f.Fixture, h, bound(tc.role))
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { tc.change(h) })
			f.Report(h, func(s *infrav1.ElementalHostStatus) {
				controllertest.SetOperation(s, infrav1.HostOperation{Type: infrav1.OperationBootstrap, ID: h.Spec.Claim.ID, State: infrav1.OperationSucceeded})
				tc.change(h)
			})
			f.Delete(f.infra)
			f.reconcileUntilStable()
			f.Expect(f.addressClaim() != nil).To(Equal(tc.stays))
			f.Expect(f.Exists(f.infra)).To(Equal(tc.stays))
			if !tc.stays {
				return
			}
			c := f.ExpectCondition(f.infra, infrav1.ReadyCondition, no, infrav1.AddressAnnouncedReason)
			f.Expect(c.Message).To(ContainSubstring(address + " does not return to its pool while hosts announce it: a."))
			controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.Claim = nil })
			f.reconcileUntilStable()
			f.Expect(f.addressClaim()).To(BeNil())
			f.Expect(f.Exists(f.infra)).To(BeFalse())
		})
	}
}

// A user may want to delete the cluster and keep its hosts running.
func TestAddressClaimWithoutOwnerOutlivesTheCluster(t *testing.T) {
	f := newFixture(t, kubeadm, vipFromPool("edge"))
	f.controlPlane(nil)
	h := f.host("a", "10.22.6.1", nic("eth0", "10.22.6.1/24"))
	f.reconcileUntilStable()
	f.allocate("10.22.6.100")
	f.reconcileUntilStable()
	controllertest.Change(f.Fixture, h, bound(infrav1.RoleControlPlane))
	f.Delete(f.infra)
	f.reconcileUntilStable()
	f.Expect(f.Exists(f.infra)).To(BeTrue())
	controllertest.Change(f.Fixture, f.addressClaim(), func(c *ipamv1.IPAddressClaim) { c.OwnerReferences = nil })
	f.reconcileUntilStable()
	f.Expect(f.Exists(f.infra)).To(BeFalse())
	f.Expect(f.addressClaim()).NotTo(BeNil())
}

func TestAddressClaimOfAnotherOwnerStays(t *testing.T) {
	f := newFixture(t, kubeadm, vipFromPool("edge"))
	f.controlPlane(nil)
	f.Create(&ipamv1.IPAddressClaim{ObjectMeta: f.Meta("c-endpoint"), Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "other"},
	}})
	f.allocate("10.22.2.100")
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.WaitingForAddressReason, "has another owner")
	f.Delete(f.infra)
	f.reconcileUntilStable()
	f.Expect(f.addressClaim()).NotTo(BeNil())
}

func TestPoolIsChangedBeforeAnAddressIsAllocated(t *testing.T) {
	f := newFixture(t, kubeadm, vipFromPool("small"))
	f.controlPlane(nil)
	f.reconcileUntilStable()
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpointPolicy.VIP.AddressFromPool.Name = "big"
	})
	f.reconcileUntilStable()
	f.Expect(f.addressClaim().Spec.PoolRef.Name).To(Equal("big"))
	f.expectCondition(no, infrav1.WaitingForAddressReason, "InClusterIPPool big")
}

// After a move or restore IPAM starts anew. The endpoint stays.
func TestEndpointStaysWithoutItsIPAddress(t *testing.T) {
	f := newFixture(t, kubeadm, vipFromPool("edge"), func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.22.3.100", Port: 6443}
	})
	f.controlPlane(nil)
	f.host("a", "10.22.3.1", nic("eth0", "10.22.3.1/24"))
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	f.allocate("10.22.3.101")
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.WaitingForAddressReason, "The endpoint is 10.22.3.100, but its IPAddressClaim was given 10.22.3.101")
	f.Expect(f.endpoint().Host).To(Equal("10.22.3.100"))
}

func TestInvalidIPAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		address, claim, message string
	}{
		"no address":      {"a.b", "c-endpoint", "has no valid IP address"},
		"another claim's": {"10.22.4.100", "d-endpoint", "belongs to IPAddressClaim d-endpoint"},
		"not there":       {"", "", "does not exist yet"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, kubeadm, vipFromPool("edge"))
			f.controlPlane(nil)
			f.host("a", "10.22.4.1", nic("eth0", "10.22.4.1/24"))
			f.reconcileUntilStable()
			c := f.addressClaim()
			if tc.address != "" {
				f.Create(&ipamv1.IPAddress{ObjectMeta: f.Meta("x"), Spec: ipamv1.IPAddressSpec{
					ClaimRef: ipamv1.IPAddressClaimReference{Name: tc.claim}, PoolRef: c.Spec.PoolRef, Address: tc.address, Prefix: new(int32(24)),
				}})
			}
			controllertest.ChangeStatus(f.Fixture, c, func(c *ipamv1.IPAddressClaim) { c.Status.AddressRef.Name = "x" })
			f.reconcileUntilStable()
			f.expectCondition(no, infrav1.WaitingForAddressReason, tc.message)
			f.Expect(f.endpoint().Host).To(BeEmpty())
		})
	}
}

func TestPoolSurvivesCrashes(t *testing.T) {
	for n, moment := range controllertest.Crashes(4) {
		t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
			f := newFixture(t, kubeadm, vipFromPool("edge"))
			f.controlPlane(nil)
			f.host("a", "10.22.0.1", nic("eth0", "10.22.0.1/16"))
			f.Client.FailWrite(n, moment)
			f.reconcileUntilStable()
			address := fmt.Sprintf("10.22.%d.%d", 100+len(moment), n)
			f.allocate(address)
			f.reconcileUntilStable()
			f.Expect(f.endpoint().Host).To(Equal(address))
		})
	}
}
