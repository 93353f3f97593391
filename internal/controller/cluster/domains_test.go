package cluster_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/failuredomains"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

const zone = infrav1.DefaultFailureDomainLabel

// labelled gives a host labels; keys and values in turn.
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

// Hosts that are no cluster's to have.
func pending(h *infrav1.ElementalHost)  { h.Spec.Approval = infrav1.ApprovalPending }
func rejected(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }
func locked(h *infrav1.ElementalHost) {
	h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
}
func fenced(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "burnt"} }

func initialized(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
	c.Status.Initialization.ControlPlaneInitialized = new(true)
}

// external needs no host.
func external(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "api.example.org", Port: 6443}
}

// domains lists what is published: "+name" for the control plane, "-name" otherwise.
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
		hosts    []changes
		want     []string
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
		"of hosts that are shut out": {want: []string{"+e"}, hosts: []changes{
			{labelled(zone, "a"), pending}, {labelled(zone, "b"), rejected}, {labelled(zone, "c"), locked}, {labelled(zone, "d"), fenced},
			{labelled(zone, "d"), fenced, claimed("c", infrav1.ClaimReleasing, infrav1.RoleControlPlane)},
			{labelled(zone, "e"), pending}, {labelled(zone, "e")},
		}},
		"of hosts that are away for a while": {want: []string{"+a", "+b", "+c"}, hosts: []changes{
			{labelled(zone, "a"), func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }},
			{labelled(zone, "b"), func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }},
			{labelled(zone, "c"), func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} }},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, append(tc.cluster, kubeadm, initialized, external)...)
			f.controlPlane(tc.selector)
			for i, changes := range tc.hosts {
				f.host(fmt.Sprintf("h%d", i), "10.0.0.1", changes...)
			}
			f.settle()
			f.Expect(f.domains()).To(Equal(tc.want))
			f.Client.Forget()
			f.settle()
			f.Expect(f.Client.Writes()).To(BeEmpty())
		})
	}
}

// Until the control plane is up its first machine has to get the reserved host,
// and machines get hosts of their own failure domain only.
func TestOnlyTheReservedHostsDomainAtFirst(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(nil)
	f.settle()
	f.host("z", "10.0.0.3", labelled(zone, "c"), func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} })
	f.settle()
	f.Expect(f.domains()).To(Equal([]string{"-c"}), "none before there is a reserved host")
	f.host("m", "10.0.0.2", labelled(zone, "b"))
	f.host("n", "10.0.0.1", labelled(zone, "a"))
	f.settle()
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal("m"))
	f.Expect(f.domains()).To(Equal([]string{"-a", "+b", "-c"}))
	controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { initialized(c, nil) })
	f.settle()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b", "+c"}))
}

// With a virtual IP address no host is reserved.
func TestAllDomainsAtFirstWithAVIP(t *testing.T) {
	f := newFixture(t, kubeadm, virtual("10.23.1.100"))
	f.controlPlane(nil)
	for i, name := range []string{"a", "b"} {
		f.host(name, "10.23.1.1", labelled(zone, name), nic("eth0", fmt.Sprintf("10.23.1.%d/24", i+1)))
	}
	f.host("c", "10.24.1.1", labelled(zone, "c"), nic("eth0", "10.24.1.1/24"))
	f.settle()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b", "-c"}), "but those whose hosts can't have it")
}

func TestDomainStaysWhileAMachineIsInIt(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	a, b := f.host("a", "10.0.0.1", labelled(zone, "a")), f.host("b", "10.0.0.2", labelled(zone, "b"))
	m := f.machine("m", "a")
	f.settle()
	f.Delete(a)
	f.Delete(b)
	f.settle()
	f.Expect(f.domains()).To(Equal([]string{"+a"}))
	f.Delete(m)
	f.settle()
	f.Expect(f.domains()).To(BeEmpty())
}

// The replacement of a Machine on a fenced host must not go where that one was.
func TestDomainGoesWithAMachineThatIsBeingDeleted(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	f.host("b", "10.0.0.2", labelled(zone, "b"))
	dead := f.host("a", "10.0.0.1", labelled(zone, "a"), claimed("c", infrav1.ClaimBound, infrav1.RoleControlPlane))
	m := f.machine("m", "a")
	controllertest.Change(f.Fixture, m, func(m *clusterv1.Machine) { m.Finalizers = []string{"example.org/drain"} })
	f.settle()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b"}))
	controllertest.Change(f.Fixture, dead, fenced)
	f.settle()
	f.Expect(f.domains()).To(Equal([]string{"+a", "+b"}))
	f.Delete(m)
	f.settle()
	f.Expect(f.domains()).To(Equal([]string{"+b"}))
}

func TestDomainsHaveALimit(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(&infrav1.HostSelector{MatchLabels: infrav1.Labels{"tier": "gold"}})
	for i := range 101 {
		f.host(fmt.Sprintf("h%d", i), "10.0.0.1", labelled(zone, fmt.Sprintf("a%03d", i)))
	}
	f.host("h", "10.0.0.1", labelled(zone, "z", "tier", "gold"))
	f.settle()
	f.Expect(f.domains()).To(HaveLen(100))
	f.Expect(f.domains()).To(ContainElement("+z"), "those that the control plane can use go first")
}

// machine makes a control-plane Machine of the cluster.
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

// A control plane that is spread by Cluster API's own rule finds hosts in every
// domain, one after the other.
func TestControlPlaneIsSpread(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	hosts := map[string]*infrav1.ElementalHost{}
	for _, name := range []string{"a1", "a2", "a3", "b1", "c1"} {
		hosts[name] = f.host(name, "10.0.0.1", labelled(zone, name[:1]))
	}
	machines := collections.New()
	got := map[string]int{}
	for i := range 3 {
		f.settle()
		m := f.machine(fmt.Sprintf("m%d", i), failuredomains.PickFewest(f.Ctx, f.infra.Status.FailureDomains, machines, machines))
		machines.Insert(m)
		request := placement.Request{FailureDomain: m.Spec.FailureDomain, FailureDomainLabel: zone, ReservedFor: "c"}
		var list []*infrav1.ElementalHost
		for _, h := range hosts {
			f.Refresh(h)
			list = append(list, h)
		}
		host := request.Pick(list)
		f.Expect(host).NotTo(BeNil(), "strict: %s", m.Spec.FailureDomain)
		got[host.Labels[zone]]++
		controllertest.Change(f.Fixture, host, claimed("c", infrav1.ClaimBound, infrav1.RoleControlPlane))
	}
	f.Expect(got).To(Equal(map[string]int{"a": 1, "b": 1, "c": 1}))
}

// Hosts tell a lot that is not a cluster's business.
func TestWhatWakesClusters(t *testing.T) {
	f := newFixture(t, kubeadm, initialized, external)
	f.controlPlane(nil)
	f.host("a", "10.0.0.1", labelled(zone, "a"))
	f.settle()
	host := func(changes ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		h := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
		for _, change := range changes {
			change(h)
		}
		return h
	}
	away := func(h *infrav1.ElementalHost) {
		h.Status.Connection.State = infrav1.ConnectionDisconnected
		h.Status.Addresses, h.Annotations = nil, map[string]string{"a": "b"}
	}
	other := claimed("other", infrav1.ClaimBound, infrav1.RoleWorker)
	for name, tc := range map[string]struct {
		was, is *infrav1.ElementalHost
		soon    bool
		later   bool
	}{
		"a host without a domain":         {is: host()},
		"a host of a known domain":        {is: host(labelled(zone, "a"))},
		"a host of a new domain":          {is: host(labelled(zone, "n")), soon: true},
		"one that others have":            {is: host(labelled(zone, "n"), other)},
		"what it reports":                 {was: host(labelled(zone, "a")), is: host(labelled(zone, "a"), away)},
		"a label for a new domain":        {was: host(), is: host(labelled(zone, "n")), soon: true},
		"a label less":                    {was: host(labelled(zone, "a")), is: host(), later: true},
		"a label that a selector may use": {was: host(labelled(zone, "a")), is: host(labelled(zone, "a", "tier", "gold")), later: true},
		"a claim by another":              {was: host(labelled(zone, "a")), is: host(labelled(zone, "a"), other), later: true},
		"a claim, without a domain":       {was: host(), is: host(other)},
		"freed, in a new domain":          {was: host(labelled(zone, "n"), other), is: host(labelled(zone, "n")), soon: true},
		"gone":                            {was: host(labelled(zone, "a")), later: true},
		"gone, without a domain":          {was: host()},
		"a stranger":                      {is: host(labelled(zone, "n"), pending)},
		"what a stranger is labelled":     {was: host(labelled(zone, "a"), pending), is: host(labelled(zone, "n"), pending)},
		"a stranger that is let in":       {was: host(labelled(zone, "n"), pending), is: host(labelled(zone, "n")), soon: true},
		"one, in a known domain":          {was: host(labelled(zone, "a"), pending), is: host(labelled(zone, "a"))},
		"a rejection":                     {was: host(labelled(zone, "a")), is: host(labelled(zone, "a"), rejected), later: true},
		"a lock":                          {was: host(labelled(zone, "a")), is: host(labelled(zone, "a"), locked), later: true},
		"a fence":                         {was: host(labelled(zone, "n")), is: host(labelled(zone, "n"), fenced), later: true},
		"the end of a fence":              {was: host(labelled(zone, "n"), fenced), is: host(labelled(zone, "n")), soon: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			q := &queue{}
			switch handler := f.reconciler.HostChanges(); {
			case tc.was == nil:
				handler.Create(f.Ctx, event.CreateEvent{Object: tc.is}, q)
			case tc.is == nil:
				handler.Delete(f.Ctx, event.DeleteEvent{Object: tc.was}, q)
			default:
				handler.Update(f.Ctx, event.UpdateEvent{ObjectOld: tc.was, ObjectNew: tc.is}, q)
			}
			c := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: f.Namespace, Name: "c"}}
			want := queue{}
			if tc.soon {
				want.soon = []ctrl.Request{c}
			}
			if tc.later {
				want.later = []ctrl.Request{c}
			}
			g.Expect(*q).To(Equal(want))
		})
	}
}

// queue remembers what was added.
type queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]

	// soon is within a second.
	now, soon, later []ctrl.Request
}

func (q *queue) Add(r ctrl.Request) { q.now = append(q.now, r) }

func (q *queue) AddAfter(r ctrl.Request, after time.Duration) {
	if after <= time.Second {
		q.soon = append(q.soon, r)
	} else {
		q.later = append(q.later, r)
	}
}
