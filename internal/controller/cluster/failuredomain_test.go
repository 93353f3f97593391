package cluster_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

const zone = infrav1.DefaultFailureDomainLabel

// labelled sets labels of a host; keys and values alternate.
func labelled(pairs ...string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		if h.Labels == nil {
			h.Labels = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			h.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

func claimed(cluster string, phase infrav1.ClaimPhase, role infrav1.ClaimRole) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + h.Name, ClusterName: cluster, MachineName: "m-" + h.Name, Phase: phase, Role: role}
	}
}

// member makes a host one of the cluster's control plane.
func member(h *infrav1.ElementalHost) { claimed("c", infrav1.ClaimBound, infrav1.RoleControlPlane)(h) }

func disconnected(h *infrav1.ElementalHost) {
	h.Status.Connection.State = infrav1.ConnectionDisconnected
}

// Hosts that no cluster may claim.
func pending(h *infrav1.ElementalHost)  { h.Spec.Approval = infrav1.ApprovalPending }
func rejected(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }
func locked(h *infrav1.ElementalHost) {
	h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
}
func fenced(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "burnt"} }

func initialized(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
	c.Status.Initialization.ControlPlaneInitialized = new(true)
}

// external sets an endpoint of the user, which needs no host.
func external(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "api.example.org", Port: 6443}
}

// domains returns the published failure domains: "+name" for the control plane, "-name"
// otherwise.
func (f *fixture) domains() []string {
	f.T.Helper()
	f.Refresh(f.infra)
	out := []string{}
	for _, d := range f.infra.Status.FailureDomains {
		sign := "-"
		if d.ControlPlane != nil && *d.ControlPlane {
			sign = "+"
		}
		out = append(out, sign+d.Name)
	}
	return out
}

func TestFailureDomains(t *testing.T) {
	type changes []func(*infrav1.ElementalHost)
	gold := &infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}}
	for name, tc := range map[string]struct {
		cluster  []func(*clusterv1.Cluster, *infrav1.ElementalCluster)
		selector *infrav1.HostSelector
		// replicas of the control plane; 1 unless set.
		replicas int32
		// outdated: its Machines are not up to date.
		outdated bool
		// waiting is the failure domain of a Machine without a host.
		waiting string
		hosts   []changes
		want    []string
	}{
		"none":      {hosts: []changes{{}, {labelled(zone, "")}}, want: []string{}},
		"sorted":    {hosts: []changes{{labelled(zone, "c")}, {labelled(zone, "a")}, {labelled(zone, "b")}, {labelled(zone, "a")}}, want: []string{"+a", "+b", "+c"}},
		"own label": {hosts: []changes{{labelled("rack", "r1", zone, "a")}}, want: []string{"+r1"}, cluster: []func(*clusterv1.Cluster, *infrav1.ElementalCluster){func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) { c.Spec.FailureDomains.HostLabel = "rack" }}},
		"by template": {selector: gold, want: []string{"+a", "-b"},
			hosts: []changes{{labelled(zone, "a", "tier", "gold")}, {labelled(zone, "a")}, {labelled(zone, "b")}}},
		"of other clusters' hosts": {want: []string{"+a"},
			hosts: []changes{{labelled(zone, "a")}, {labelled(zone, "b"), claimed("other", infrav1.ClaimBound, infrav1.RoleWorker)}}},
		"of the cluster's hosts": {want: []string{"+a", "-b", "+c"},
			hosts: []changes{
				{labelled(zone, "a"), claimed("c", infrav1.ClaimBound, infrav1.RoleControlPlane)},
				{labelled(zone, "b"), claimed("c", infrav1.ClaimBound, infrav1.RoleWorker)},
				{labelled(zone, "c"), claimed("c", infrav1.ClaimBound, infrav1.RoleWorker)}, {labelled(zone, "c")},
			}},
		"of hosts that are not admitted": {want: []string{"+e"}, hosts: []changes{
			{labelled(zone, "a"), pending}, {labelled(zone, "b"), rejected}, {labelled(zone, "c"), locked}, {labelled(zone, "d"), fenced},
			{labelled(zone, "d"), fenced, claimed("c", infrav1.ClaimReleasing, infrav1.RoleControlPlane)},
			{labelled(zone, "e"), pending}, {labelled(zone, "e")},
		}},
		"of a Machine's host that is dead and being released": {want: []string{"-a", "+b"}, hosts: []changes{
			{labelled(zone, "a"), disconnected, claimed("c", infrav1.ClaimReleasing, infrav1.RoleControlPlane)}, {labelled(zone, "b")},
		}},
		"of a host that is being reset": {want: []string{"+a", "+b"}, hosts: []changes{
			{labelled(zone, "a"), claimed("c", infrav1.ClaimReleasing, infrav1.RoleControlPlane)}, {labelled(zone, "b")},
		}},
		"of a host whose reset failed": {want: []string{"-a", "+b"}, hosts: []changes{
			{labelled(zone, "a"), claimed("c", infrav1.ClaimReleasing, infrav1.RoleControlPlane), func(h *infrav1.ElementalHost) {
				h.Status.Operations = []infrav1.HostOperation{{Type: infrav1.OperationReset, ID: h.Spec.Claim.ID, State: infrav1.OperationFailed}}
			}}, {labelled(zone, "b")},
		}},
		"of a held host": {want: []string{"-a", "+b"}, hosts: []changes{
			{labelled(zone, "a"), claimed("c", infrav1.ClaimHeld, infrav1.RoleControlPlane)}, {labelled(zone, "b")},
		}},
		"before a Machine is created: with an available host only": {replicas: 4, want: []string{"+a", "-b", "-c", "-d"}, hosts: []changes{
			{labelled(zone, "a"), member}, {labelled(zone, "b"), member}, {labelled(zone, "c"), member}, {labelled(zone, "a")}, {labelled(zone, "d"), disconnected},
		}},
		"in a rollout that creates first: with an available host only": {replicas: 3, outdated: true, want: []string{"+a", "-b", "-c"}, hosts: []changes{
			{labelled(zone, "a"), member}, {labelled(zone, "b"), member}, {labelled(zone, "c"), member}, {labelled(zone, "a")},
		}},
		"while a Machine waits: with an available host only": {replicas: 2, waiting: "b", want: []string{"-a", "-b", "+c"}, hosts: []changes{
			{labelled(zone, "a"), member}, {labelled(zone, "b"), member}, {labelled(zone, "c")},
		}},
		"before a Machine is created, without a free host: all in use": {replicas: 3, want: []string{"+a", "+b"}, hosts: []changes{
			{labelled(zone, "a"), member}, {labelled(zone, "b"), member},
		}},
		"with more Machines than replicas: in use, too": {replicas: 3, want: []string{"+a", "+b", "+c", "+d"}, hosts: []changes{
			{labelled(zone, "a"), member}, {labelled(zone, "a"), member}, {labelled(zone, "b"), member}, {labelled(zone, "b"), member}, {labelled(zone, "c"), member},
			{labelled(zone, "a")}, {labelled(zone, "d")},
		}},
		"at rest: in use, too, as scaling down is the next step": {replicas: 3, want: []string{"+a", "+b", "+c"}, hosts: []changes{
			{labelled(zone, "a"), member}, {labelled(zone, "b"), member}, {labelled(zone, "c"), member}, {labelled(zone, "a")},
		}},
		"of hosts that are unavailable for a time": {want: []string{"+a", "+b", "+c"}, hosts: []changes{
			{labelled(zone, "a"), func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }},
			{labelled(zone, "b"), func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }},
			{labelled(zone, "c"), func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} }},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, append(tc.cluster, kubeadm, initialized, external)...)
			f.controlPlane(tc.selector)
			f.setReplicas(max(tc.replicas, 1))
			for i, changes := range tc.hosts {
				h := f.host(fmt.Sprintf("h%d", i), "10.0.0.1", changes...)
				if claim := h.Spec.Claim; claim != nil && claim.Phase == infrav1.ClaimBound && claim.Role.IsControlPlane() {
					m := f.machine(claim.MachineName, h.Labels[zone])
					if tc.outdated {
						f.setOutdated(m)
					}
				}
			}
			if tc.waiting != "" {
				f.machine("waiting", tc.waiting)
			}
			f.reconcileUntilStable()
			f.Expect(f.domains()).To(Equal(tc.want))
			f.Client.Forget()
			f.reconcileUntilStable()
			f.Expect(f.Client.Writes()).To(BeEmpty())
		})
	}
}

// The first control-plane machine has to claim the reserved host, and machines claim only
// hosts of their own failure domain.
func TestFirstMachineGetsTheReservedHostsDomain(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(nil)
	f.reconcileUntilStable()
	f.host("z", "10.0.0.3", labelled(zone, "c"), func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} })
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"-c"}), "no host is reserved yet")
	f.host("m", "10.0.0.2", labelled(zone, "b"))
	f.host("n", "10.0.0.1", labelled(zone, "a"))
	f.reconcileUntilStable()
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal("m"))
	f.Expect(f.domains()).To(Equal([]string{"-a", "+b", "-c"}))
	controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { initialized(c, nil) })
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b", "-c"}), "the host of c is cordoned")
	f.machine("m-m", "b")
	controllertest.Change(f.Fixture, &infrav1.ElementalHost{ObjectMeta: f.Meta("m")}, member)
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b", "+c"}), "no Machine is to be created")
}

// With a virtual IP address no host is reserved, so all feasible domains are published.
func TestDomainsWithAVIP(t *testing.T) {
	f := newFixture(t, kubeadm, virtual("10.23.1.100"))
	f.controlPlane(nil)
	for i, name := range []string{"a", "b"} {
		f.host(name, "10.23.1.1", labelled(zone, name), nic("eth0", fmt.Sprintf("10.23.1.%d/24", i+1)))
	}
	f.host("c", "10.24.1.1", labelled(zone, "c"), nic("eth0", "10.24.1.1/24"))
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b", "-c"}), "hosts of domain c can't have the address")
}

func TestDomainWithAMachineStays(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	a, b := f.host("a", "10.0.0.1", labelled(zone, "a")), f.host("b", "10.0.0.2", labelled(zone, "b"))
	m := f.machine("m", "a")
	f.reconcileUntilStable()
	f.Delete(a)
	f.Delete(b)
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+a"}))
	f.Delete(m)
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(BeEmpty())
}

// The replacement of a Machine on a fenced host must not be placed in the same domain.
func TestDomainOfADeletedMachineIsRemoved(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	f.host("b", "10.0.0.2", labelled(zone, "b"))
	dead := f.host("a", "10.0.0.1", labelled(zone, "a"), member)
	m := f.machine("m-a", "a")
	controllertest.Change(f.Fixture, m, func(m *clusterv1.Machine) { m.Finalizers = []string{"example.org/drain"} })
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b"}))
	controllertest.Change(f.Fixture, dead, fenced)
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b"}))
	f.Delete(m)
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(Equal([]string{"+b"}))
}

func TestNumberOfDomainsIsLimited(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}})
	for i := range 101 {
		f.host(fmt.Sprintf("h%d", i), "10.0.0.1", labelled(zone, fmt.Sprintf("a%03d", i)))
	}
	f.host("h", "10.0.0.1", labelled(zone, "z", "tier", "gold"))
	f.reconcileUntilStable()
	f.Expect(f.domains()).To(HaveLen(100))
	f.Expect(f.domains()).To(ContainElement("+z"), "domains of the control plane take precedence")
}

// machine creates a control-plane Machine of the cluster.
func (f *fixture) machine(name, domain string) *clusterv1.Machine {
	f.T.Helper()
	m := &clusterv1.Machine{ObjectMeta: f.Meta(name), Spec: clusterv1.MachineSpec{
		ClusterName: "c", FailureDomain: domain,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("data")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""}
	f.Create(m)
	return m
}

// setReplicas sets the number of Machines that the control plane is to have.
func (f *fixture) setReplicas(n int32) {
	f.T.Helper()
	controllertest.Change(f.Fixture, &controlplanev1.KubeadmControlPlane{ObjectMeta: f.Meta("c")}, func(k *controlplanev1.KubeadmControlPlane) {
		k.Spec.Replicas = &n
	})
}

// setOutdated marks a Machine as KubeadmControlPlane does during a rollout.
func (f *fixture) setOutdated(m *clusterv1.Machine) {
	f.T.Helper()
	controllertest.ChangeStatus(f.Fixture, m, func(m *clusterv1.Machine) {
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineUpToDateCondition, Status: no, Reason: clusterv1.MachineNotUpToDateReason, Message: "* Version v1.35.0, v1.36.3 required",
		})
	})
}
