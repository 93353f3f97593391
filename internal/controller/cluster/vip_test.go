package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// virtual requests that virtual IP address.
func virtual(address string, changes ...func(*infrav1.EndpointVIP)) func(*clusterv1.Cluster, *infrav1.ElementalCluster) {
	return func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		vip := &infrav1.EndpointVIP{Address: address}
		for _, change := range changes {
			change(vip)
		}
		c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeVIP, VIP: vip}
	}
}

// nic adds an interface to a host.
func nic(name string, addresses ...string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		if h.Status.Inventory == nil {
			h.Status.Inventory = &infrav1.HostInventory{}
		}
		h.Status.Inventory.NICs = append(h.Status.Inventory.NICs, infrav1.HostNIC{Name: name, Addresses: addresses})
	}
}

// having adds an address to a host's report.
func having(address string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Status.Addresses = append(h.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
	}
}

// bound lets a machine of the cluster claim a host.
func bound(role infrav1.ClaimRole) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + h.Name, ClusterName: "c", MachineName: "m-" + h.Name, Phase: infrav1.ClaimBound, Role: role}
	}
}

func (f *fixture) expectCondition(status metav1.ConditionStatus, reason, message string) {
	f.T.Helper()
	f.ExpectCondition(f.infra, infrav1.ControlPlaneEndpointReadyCondition, status, reason)
	condition := meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)
	f.Expect(condition.Message).To(ContainSubstring(message))
}

func TestVIPIsPublishedOnce(t *testing.T) {
	f := newFixture(t, kubeadm, virtual("10.20.1.100"))
	f.controlPlane(nil)
	f.host("a", "10.20.1.1", nic("eth0", "10.20.1.1/24"))
	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "10.20.1.100", Port: 6443}))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.VIP.Distribution).To(Equal(infrav1.DistributionKubeadm), "from the control plane")
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "virtual IP address")
	f.Client.Forget()
	f.reconcileUntilStable()
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

func TestVIPKeepsTheUsersSettings(t *testing.T) {
	f := newFixture(t, virtual("2001:db8:20::100", func(v *infrav1.EndpointVIP) { v.Distribution = infrav1.DistributionRKE2 }), kubeadm,
		func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
			c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "2001:DB8:20::100", Port: 7443}
		})
	f.controlPlane(nil)
	f.host("a", "2001:db8:20::1", nic("eth0", "2001:db8:20::1/64"))
	f.reconcileUntilStable()
	f.Expect(f.endpoint()).To(Equal(infrav1.ControlPlaneEndpoint{Host: "2001:DB8:20::100", Port: 7443}))
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.VIP.Distribution).To(Equal(infrav1.DistributionRKE2))
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
}

// An address that can't work is reported and not published.
func TestUnusableVIPIsNotPublished(t *testing.T) {
	// Only one cluster each wants the other addresses: otherwise that would be the reason.
	const address, taken, ofFenced, ofLocked = "10.20.2.100", "10.20.2.101", "10.20.2.102", "10.20.2.103"
	named := func(name string) func(*infrav1.EndpointVIP) {
		return func(v *infrav1.EndpointVIP) { v.Interface = name }
	}
	ofOthers := func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "x", ClusterName: "other", MachineName: "m", Phase: infrav1.ClaimBound}
	}
	for name, tc := range map[string]struct {
		cluster         []func(*clusterv1.Cluster, *infrav1.ElementalCluster)
		selector        *infrav1.HostSelector
		hosts           map[string][]func(*infrav1.ElementalHost)
		reason, message string
	}{
		"no control plane": {reason: infrav1.WaitingForControlPlaneRefReason, message: "vip.distribution",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){virtual(address)}},
		"a control plane of an unknown kind": {reason: infrav1.DistributionUnknownReason, message: "how a FooControlPlane installs",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){virtual(address), func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
				c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "FooControlPlane", Name: "c"}
			}}},
		"no host": {reason: infrav1.NoHostReason, message: "no ElementalHosts",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(address)}},
		"no host that matches": {reason: infrav1.NoHostReason, message: "not matching",
			cluster:  []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(address)},
			selector: &infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}},
			hosts:    map[string][]func(*infrav1.ElementalHost){"a": {nic("eth0", "10.20.2.1/24")}}},
		"outside all subnets": {reason: infrav1.VIPOutsideSubnetsReason, message: "mode ARP needs it: a, b",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(address)},
			hosts:   map[string][]func(*infrav1.ElementalHost){"b": {nic("eth0", "10.20.3.1/24")}, "a": {nic("eth0", "2001:db8::1/64")}}},
		"in a subnet of another cluster's host": {reason: infrav1.VIPOutsideSubnetsReason, message: "mode ARP needs it: a",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(address)},
			hosts:   map[string][]func(*infrav1.ElementalHost){"b": {nic("eth0", "10.20.2.1/24"), ofOthers}, "a": {nic("eth0", "10.20.3.1/24")}}},
		"interface missing": {reason: infrav1.InterfaceMissingReason, message: "has an interface bond0: a, b",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(address, named("bond0"))},
			hosts:   map[string][]func(*infrav1.ElementalHost){"b": {nic("eth0", "10.20.2.1/24")}, "a": nil}},
		"only in subnets of hosts that are not admitted": {reason: infrav1.NoHostReason, message: "None of 3 hosts can be used: 1 Fenced, 1 IdentityCloned, 1 PendingApproval",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(address)},
			hosts: map[string][]func(*infrav1.ElementalHost){
				"a": {nic("eth0", "10.20.2.1/24"), pending}, "b": {nic("eth0", "10.20.2.2/24"), locked}, "c": {nic("eth0", "10.20.2.3/24"), fenced},
			}},
		"an address of a fenced host": {reason: infrav1.VIPInUseReason, message: "an address of ElementalHost b",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(ofFenced)},
			hosts:   map[string][]func(*infrav1.ElementalHost){"a": {nic("eth0", "10.20.2.1/24")}, "b": {having(ofFenced), fenced}}},
		"an address of a locked host": {reason: infrav1.VIPInUseReason, message: "an address of ElementalHost b",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(ofLocked)},
			hosts:   map[string][]func(*infrav1.ElementalHost){"a": {nic("eth0", "10.20.2.1/24")}, "b": {having(ofLocked), locked}}},
		"an address of a host": {reason: infrav1.VIPInUseReason, message: "an address of ElementalHost b",
			cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){kubeadm, virtual(taken)},
			hosts:   map[string][]func(*infrav1.ElementalHost){"a": {nic("eth0", "10.20.2.1/24")}, "b": {ofOthers, having(taken)}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.cluster...)
			if f.cluster.Spec.ControlPlaneRef.Kind == "KubeadmControlPlane" {
				f.controlPlane(tc.selector)
			}
			for name, changes := range tc.hosts {
				f.Host(name, changes...)
			}
			f.reconcileUntilStable()
			f.expectCondition(no, tc.reason, tc.message)
			f.Expect(f.endpoint().Host).To(BeEmpty())
			f.Expect(f.infra.Status.Initialization.Provisioned).To(BeNil())
			f.Client.Forget()
			f.reconcileUntilStable()
			f.Expect(f.Client.Writes()).To(BeEmpty(), "the condition is written once")
		})
	}
}

func TestVIPIsPublishedWithTheFirstFeasibleHost(t *testing.T) {
	f := newFixture(t, kubeadm, virtual("10.20.4.100"))
	f.controlPlane(nil)
	f.host("a", "10.20.5.1", nic("eth0", "10.20.5.1/24"))
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.VIPOutsideSubnetsReason, "a")
	f.host("b", "10.20.4.1", nic("eth0", "10.20.4.1/24"))
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "in none of their subnets: a")
}

func TestMessageNamesHostsWithoutTheInterface(t *testing.T) {
	f := newFixture(t, kubeadm, virtual("10.20.6.100", func(v *infrav1.EndpointVIP) { v.Interface = "eth1" }))
	f.controlPlane(nil)
	f.host("a", "10.20.6.1", nic("eth1", "10.20.6.1/24"))
	for i := range 7 {
		f.host(fmt.Sprintf("b%d", i), "10.20.6.2", nic("eth0", "10.20.6.2/24"))
	}
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "no interface eth1: b0, b1, b2, b3, b4, and 2 more")
}

// Mode BGP needs no subnet.
func TestVIPByBGP(t *testing.T) {
	f := newFixture(t, kubeadm, virtual("10.99.0.100", func(v *infrav1.EndpointVIP) {
		v.Mode, v.BGP = infrav1.VIPModeBGP, &infrav1.VIPBGP{LocalASN: 65000, Peers: []infrav1.BGPPeer{{Address: "10.20.7.254", ASN: 65001}}}
	}))
	f.controlPlane(nil)
	f.host("a", "10.20.7.1", nic("eth0", "10.20.7.1/24"))
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
}

// An interface may disappear from a running cluster's host. The endpoint stays.
func TestMissingInterfaceIsReported(t *testing.T) {
	f := newFixture(t, kubeadm, virtual("10.20.8.100", func(v *infrav1.EndpointVIP) { v.Interface = "eth0" }))
	f.controlPlane(nil)
	a := f.host("a", "10.20.8.1", nic("eth0", "10.20.8.1/24"))
	f.reconcileUntilStable()
	controllertest.Change(f.Fixture, a, bound(infrav1.RoleInitialControlPlane))
	f.host("w", "10.20.8.2", nic("eth7", "10.20.8.2/24"), bound(infrav1.RoleWorker))
	f.reconcileUntilStable()
	f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	f.Report(a, func(s *infrav1.ElementalHostStatus) { s.Inventory.NICs[0].Name = "eth9" })
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.InterfaceMissingReason, "control-plane hosts: a")
	f.Expect(f.endpoint().Host).To(Equal("10.20.8.100"))
	f.Expect(f.infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
}

func TestTwoClustersWantTheSameAddress(t *testing.T) {
	const address = "10.20.9.100"
	first := newFixture(t, kubeadm, virtual(address))
	second := newFixture(t, kubeadm, virtual("10.20.9.100"))
	second.controlPlane(nil)
	second.host("a", "10.20.9.1", nic("eth0", "10.20.9.1/24"))
	if !first.infra.CreationTimestamp.Before(&second.infra.CreationTimestamp) && first.Namespace > second.Namespace {
		// The name decides between clusters of the same second.
		t.Logf("%s is as old as %s", first.Namespace, second.Namespace)
		first, second = second, first
		second.controlPlane(nil)
		second.host("a", "10.20.9.2", nic("eth0", "10.20.9.2/24"))
	}
	second.reconcileUntilStable()
	second.expectCondition(no, infrav1.VIPInUseReason, fmt.Sprintf("10.20.9.100 is the endpoint of ElementalCluster %s/c", first.Namespace))
	second.Expect(second.endpoint().Host).To(BeEmpty())
	second.Expect(second.reconcile().RequeueAfter).To(Equal(time.Minute), "no event tells when the address is free")
	first.Delete(first.infra)
	second.reconcileUntilStable()
	second.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
}

// A cluster that has the address takes precedence over an older one that wants it.
func TestAddressInUseIsNotTakenByAnOlderCluster(t *testing.T) {
	older := newFixture(t, kubeadm)
	newer := newFixture(t, kubeadm, virtual("10.20.10.100"))
	newer.controlPlane(nil)
	newer.host("a", "10.20.10.1", nic("eth0", "10.20.10.1/24"))
	newer.reconcileUntilStable()
	newer.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
	older.controlPlane(nil)
	older.host("a", "10.20.10.2", nic("eth0", "10.20.10.2/24"))
	controllertest.Change(older.Fixture, older.infra, func(c *infrav1.ElementalCluster) { virtual("10.20.10.100")(nil, c) })
	older.reconcileUntilStable()
	older.expectCondition(no, infrav1.VIPInUseReason, newer.Namespace)
	newer.reconcileUntilStable()
	newer.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
}

// Of clusters that start at the same time only one may find the address free.
func TestOneOfManyGetsTheAddress(t *testing.T) {
	g := NewWithT(t)
	var all []*fixture
	for i := range 6 {
		f := newFixture(t, kubeadm, virtual("10.20.12.100"))
		f.controlPlane(nil)
		f.host("a", "", nic("eth0", fmt.Sprintf("10.20.12.%d/24", i+1)))
		all = append(all, f)
	}
	reconciler := all[0].reconciler
	reader := &slowReader{Reader: reconciler.APIReader}
	reconciler.APIReader = reader
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() { _, _ = reconciler.Reconcile(f.Ctx, f.request()) })
	}
	running.Wait()
	g.Expect(reader.most.Load()).To(BeEquivalentTo(1), "checking and publishing is serialized")
	var with []string
	for _, f := range all {
		f.reconcileUntilStable()
		if f.endpoint().Host != "" {
			with = append(with, f.Namespace)
		}
	}
	g.Expect(with).To(HaveLen(1))
}

// slowReader lists clusters slowly, and counts concurrent lists.
type slowReader struct {
	client.Reader

	now, most atomic.Int32
}

func (r *slowReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*infrav1.ElementalClusterList); ok {
		r.most.Store(max(r.most.Load(), r.now.Add(1)))
		defer r.now.Add(-1)
		while, done := context.WithTimeout(ctx, 100*time.Millisecond)
		defer done()
		<-while.Done()
	}
	return r.Reader.List(ctx, list, options...)
}

func TestVIPSurvivesCrashes(t *testing.T) {
	for n, moment := range controllertest.Crashes(4) {
		t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
			address := fmt.Sprintf("10.21.%d.%d", n, len(moment))
			f := newFixture(t, kubeadm, virtual(address))
			f.controlPlane(nil)
			f.host("a", "10.21.0.1", nic("eth0", "10.21.0.1/16"))
			f.Client.FailWrite(n, moment)
			f.reconcileUntilStable()
			f.Expect(f.endpoint().Host).To(Equal(address))
			f.expectCondition(yes, infrav1.EndpointFromVIPReason, "")
		})
	}
}

func TestRefusedVIPs(t *testing.T) {
	for message, change := range map[string]func(*infrav1.ElementalCluster){
		"or give the same address there": func(c *infrav1.ElementalCluster) {
			virtual("10.20.11.100")(nil, c)
			c.Spec.ControlPlaneEndpoint.Host = "10.20.11.101"
		},
		"with type VIP leave": func(c *infrav1.ElementalCluster) {
			virtual("10.20.11.100")(nil, c)
			c.Spec.ControlPlaneEndpoint.Host = "api.example"
		},
		"give one of address and addressFromPool": func(c *infrav1.ElementalCluster) { virtual("")(nil, c) },
		"mode BGP needs bgp": func(c *infrav1.ElementalCluster) {
			virtual("10.20.11.100", func(v *infrav1.EndpointVIP) { v.Mode = infrav1.VIPModeBGP })(nil, c)
		},
	} {
		t.Run(message, func(t *testing.T) {
			f := controllertest.New(t, env)
			c := &infrav1.ElementalCluster{ObjectMeta: f.Meta("c")}
			change(c)
			f.Expect(f.Admin.Create(f.Ctx, c)).To(MatchError(ContainSubstring(message)))
		})
	}
}
