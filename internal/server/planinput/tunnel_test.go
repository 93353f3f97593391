package planinput

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

var tunnelStart = time.Unix(1000, 0)

// tunnelCluster returns cluster c of type Tunnel.
func tunnelCluster() *infrav1.ElementalCluster {
	c := newCluster("c")
	c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "c-endpoint", Port: 16443}
	c.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeTunnel}
	return c
}

// tunneling returns a connected host of cluster c that can have a tunnel.
func tunneling(name string, role infrav1.ClaimRole, change ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
	host := newHost(name, "c", role)
	host.Spec.Approval = infrav1.ApprovalApproved
	host.Status.Agent.Capabilities = []string{string(protocol.CapabilityTunnel), string(protocol.CapabilityLocalEndpoint)}
	host.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected}
	for _, f := range change {
		f(host)
	}
	return host
}

func serving(address string) func(*infrav1.ElementalHost) {
	return func(host *infrav1.ElementalHost) {
		host.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Address: address}}
	}
}

// tunnelIs sets the state of the host's tunnel, since a time that many seconds ago.
func tunnelIs(state infrav1.ConnectionState, seconds int) func(*infrav1.ElementalHost) {
	return func(host *infrav1.ElementalHost) {
		host.Status.Tunnel = &infrav1.HostTunnel{State: state, Since: metav1.NewTime(tunnelStart.Add(-time.Duration(seconds) * time.Second))}
	}
}

// channelWaker sends the names of woken hosts.
type channelWaker chan string

func (c channelWaker) Wake(_ context.Context, host types.NamespacedName) { c <- host.Name }

func fenced(host *infrav1.ElementalHost)      { host.Spec.Fence = &infrav1.HostFence{Reason: "dead"} }
func unsupported(host *infrav1.ElementalHost) { host.Status.Agent.Capabilities = nil }
func fresh(host *infrav1.ElementalHost)       { host.Status.Operations = nil }
func disconnected(host *infrav1.ElementalHost) {
	host.Status.Connection.State = infrav1.ConnectionDisconnected
}
func releasing(host *infrav1.ElementalHost) { host.Spec.Claim.Phase = infrav1.ClaimReleasing }
func held(host *infrav1.ElementalHost)      { host.Spec.Claim.Phase = infrav1.ClaimHeld }

func beingDeleted(host string) *clusterv1.Machine { return leaving(host, 0) }

// leaving returns the Machine of a host, which is being deleted since that many seconds.
func leaving(host string, seconds int) *clusterv1.Machine {
	since := metav1.NewTime(tunnelStart.Add(-time.Duration(seconds) * time.Second))
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "machine-" + host, DeletionTimestamp: &since, Finalizers: []string{"x"},
	}}
}

func TestBackends(t *testing.T) {
	const controlPlane, initial, worker = infrav1.RoleControlPlane, infrav1.RoleInitialControlPlane, infrav1.RoleWorker
	asked := tunneling("h", worker)
	foreign := tunneling("f", controlPlane, serving("10.0.0.99:6443"))
	foreign.Spec.Claim.ClusterName = "d"
	var many []client.Object
	for i := range protocol.MaxBackends + 3 {
		many = append(many, tunneling(fmt.Sprint("m", i), controlPlane, serving(fmt.Sprintf("10.0.1.%d:6443", 100+i))))
	}
	for name, tc := range map[string]struct {
		others []client.Object
		want   []string
	}{
		"sorted": {[]client.Object{
			tunneling("a", controlPlane, serving("10.0.0.2:6443")), tunneling("b", initial, serving("10.0.0.1:6443")), foreign,
		}, []string{"10.0.0.1:6443", "10.0.0.2:6443"}},
		"the same twice":               {[]client.Object{tunneling("a", controlPlane, serving("10.0.0.2:6443")), tunneling("b", controlPlane, serving("10.0.0.2:6443"))}, []string{"10.0.0.2:6443"}},
		"bounded":                      {many, nil},
		"no address":                   {[]client.Object{tunneling("a", controlPlane)}, nil},
		"worker":                       {[]client.Object{tunneling("a", worker, serving("10.0.0.2:6443"))}, nil},
		"fenced":                       {[]client.Object{tunneling("a", controlPlane, serving("10.0.0.2:6443"), fenced)}, nil},
		"held":                         {[]client.Object{tunneling("a", controlPlane, serving("10.0.0.2:6443"), held)}, nil},
		"releasing":                    {[]client.Object{tunneling("a", controlPlane, serving("10.0.0.2:6443"), releasing)}, nil},
		"of a disconnected agent":      {[]client.Object{tunneling("a", controlPlane, serving("10.0.0.2:6443"), disconnected)}, []string{"10.0.0.2:6443"}},
		"the Machine is being deleted": {[]client.Object{tunneling("a", controlPlane, serving("10.0.0.2:6443")), beingDeleted("a")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := newReader(t, append(tc.others, newOwner("c"), tunnelCluster(), asked)...)
			is, err := r.Cluster(t.Context(), asked)
			g.Expect(err).NotTo(HaveOccurred())
			if name == "bounded" {
				g.Expect(is.Backends).To(HaveLen(protocol.MaxBackends))
				return
			}
			g.Expect(is.Backends).To(Equal(tc.want))
			own := tunneling("h", controlPlane, serving("10.0.0.5:6443"))
			is, err = newReader(t, append(tc.others, newOwner("c"), tunnelCluster(), own)...).Cluster(t.Context(), own)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(is.Backends).To(Equal(tc.want), "a host's own API server is not in its plan")
		})
	}
}

// Users reach a cluster of another type through its control plane only: its workers have no
// forwarders.
func TestTunnelsForUsers(t *testing.T) {
	g := NewWithT(t)
	cluster := tunnelCluster()
	cluster.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeExternal
	a, w := tunneling("a", infrav1.RoleControlPlane, tunnelIs(infrav1.ConnectionDisconnected, 99)), tunneling("w", infrav1.RoleWorker)
	wanted := func() map[string]bool {
		r, out := newReader(t, newOwner("c"), cluster, a, w), map[string]bool{}
		for _, host := range []*infrav1.ElementalHost{a, w} {
			is, err := r.WantsTunnel(t.Context(), host)
			g.Expect(err).NotTo(HaveOccurred())
			out[host.Name] = is
		}
		return out
	}
	g.Expect(wanted()).To(Equal(map[string]bool{"a": false, "w": false}))
	cluster.Spec.Access = &infrav1.Access{}
	g.Expect(wanted()).To(Equal(map[string]bool{"a": true, "w": false}))
	cluster.Spec.Access = nil
	cluster.Status.Conditions = []metav1.Condition{{Type: infrav1.AccessReadyCondition, Status: metav1.ConditionFalse}}
	g.Expect(wanted()).To(Equal(map[string]bool{"a": true, "w": false}), "the bindings are not deleted yet")
}

func TestFallback(t *testing.T) {
	const controlPlane, worker, connected, lost = infrav1.RoleControlPlane, infrav1.RoleWorker, infrav1.ConnectionConnected, infrav1.ConnectionDisconnected
	for name, tc := range map[string]struct {
		hosts []client.Object
		want  []string
	}{
		"a tunnel":                  {[]client.Object{tunneling("a", controlPlane, tunnelIs(connected, 0)), tunneling("b", controlPlane, tunnelIs(lost, 99))}, nil},
		"lost for 30 s":             {[]client.Object{tunneling("a", controlPlane, tunnelIs(lost, 30)), tunneling("b", controlPlane, tunnelIs(lost, 99))}, []string{"v", "w"}},
		"lost for 29 s":             {[]client.Object{tunneling("a", controlPlane, tunnelIs(lost, 29)), tunneling("b", controlPlane, tunnelIs(lost, 99))}, nil},
		"asked just now":            {[]client.Object{tunneling("a", controlPlane), tunneling("b", controlPlane, tunnelIs(lost, 99))}, nil},
		"fenced with a lost tunnel": {[]client.Object{tunneling("a", controlPlane, fenced), tunneling("b", controlPlane, tunnelIs(lost, 99))}, []string{"v", "w"}},
		"held with a tunnel":        {[]client.Object{tunneling("a", controlPlane, held, tunnelIs(connected, 0)), tunneling("b", controlPlane, tunnelIs(lost, 99))}, []string{"v", "w"}},
		"agents that can't":         {[]client.Object{tunneling("a", controlPlane, unsupported)}, []string{"v", "w"}},
		"a tunnel whose Machine was deleted 30 s ago": {[]client.Object{tunneling("a", controlPlane, tunnelIs(connected, 99)), leaving("a", 30)}, []string{"v", "w"}},
		"a tunnel whose Machine was deleted 29 s ago": {[]client.Object{tunneling("a", controlPlane, tunnelIs(connected, 99)), leaving("a", 29)}, nil},
		"asked, and the Machine was deleted":          {[]client.Object{tunneling("a", controlPlane), leaving("a", 30)}, []string{"v", "w"}},
		"lost before the Machine was deleted":         {[]client.Object{tunneling("a", controlPlane, tunnelIs(lost, 30)), leaving("a", 1)}, []string{"v", "w"}},
		"another has a tunnel":                        {[]client.Object{tunneling("a", controlPlane, tunnelIs(connected, 99)), leaving("a", 30), tunneling("b", controlPlane, tunnelIs(connected, 0))}, nil},
		"a worker whose Machine was deleted":          {[]client.Object{tunneling("a", controlPlane, tunnelIs(lost, 99)), leaving("v", 1)}, []string{"w", "x"}},
		"no API server yet":                           {[]client.Object{tunneling("a", controlPlane, fresh)}, nil},
		"no control plane":                            {nil, nil},
		"a worker's tunnel is no reason":              {[]client.Object{tunneling("a", controlPlane, tunnelIs(lost, 99)), tunneling("t", worker, tunnelIs(connected, 0))}, []string{"t", "v"}},
		"able workers": {[]client.Object{
			tunneling("a", controlPlane, tunnelIs(lost, 99)), tunneling("q", worker, disconnected), tunneling("r", worker, unsupported),
			tunneling("s", worker, fresh), tunneling("t", worker, fenced), tunneling("u", worker, func(h *infrav1.ElementalHost) {
				h.Status.Agent.Capabilities = []string{string(protocol.CapabilityTunnel)}
			}),
		}, []string{"v", "w"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			workers := []client.Object{tunneling("v", worker), tunneling("w", worker), tunneling("x", worker)}
			all := slices.Concat(tc.hosts, workers)
			r := newReader(t, append(all, newOwner("c"), tunnelCluster())...)
			var asked []string
			for _, o := range all {
				host, ok := o.(*infrav1.ElementalHost)
				if !ok {
					continue
				}
				is, err := r.Cluster(t.Context(), host)
				g.Expect(err).NotTo(HaveOccurred())
				wants, err := r.WantsTunnel(t.Context(), host)
				g.Expect(err).NotTo(HaveOccurred())
				if host.Spec.Claim.Role == worker {
					g.Expect(wants).To(Equal(is.Fallback), host.Name)
				}
				if is.Fallback && host.Spec.Claim.Role == worker {
					asked = append(asked, host.Name)
				}
			}
			g.Expect(asked).To(Equal(tc.want))
		})
	}
}

func TestTunnelsWakeHosts(t *testing.T) {
	const controlPlane, worker, connected, lost = infrav1.RoleControlPlane, infrav1.RoleWorker, infrav1.ConnectionConnected, infrav1.ConnectionDisconnected
	all := []string{"a", "b", "v", "w", "x", "y"}
	a := func(change ...func(*infrav1.ElementalHost)) *infrav1.ElementalHost {
		return tunneling("a", controlPlane, append([]func(*infrav1.ElementalHost){serving("10.0.0.1:6443"), tunnelIs(connected, 0)}, change...)...)
	}
	elsewhere := func(host *infrav1.ElementalHost) { host.Spec.Claim.ClusterName = "d" }
	for name, tc := range map[string]struct {
		before, after *infrav1.ElementalHost
		want          []string
	}{
		"nothing":                     {a(), a(func(h *infrav1.ElementalHost) { h.Labels = map[string]string{"x": "y"} }), nil},
		"another address":             {a(), a(serving("10.0.0.2:6443")), all},
		"the address of another type": {a(elsewhere), a(elsewhere, serving("10.0.0.2:6443")), nil},
		"fenced":                      {a(), a(fenced), append([]string{"v", "w", "x"}, all...)},
		"releasing":                   {a(), a(releasing), append([]string{"v", "w", "x"}, all...)},
		"deleted":                     {a(), &infrav1.ElementalHost{ObjectMeta: a().ObjectMeta}, append([]string{"v", "w", "x"}, all...)},
		"a tunnel lost":               {a(), a(tunnelIs(lost, 20)), []string{"v", "w", "x"}},
		"a tunnel back":               {a(tunnelIs(lost, 20)), a(), []string{"v", "w", "x"}},
		"a worker lost":               {tunneling("v", worker), tunneling("v", worker, disconnected), []string{"v", "w", "x"}},
		"a worker of another type":    {tunneling("v", worker, elsewhere), tunneling("v", worker, elsewhere, disconnected), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			woken := &wakes{}
			other := newCluster("d")
			other.OwnerReferences[0].Name = "d"
			r := newReader(t, newOwner("c"), tunnelCluster(), newOwner("d"), other, newHost("z", "d", worker),
				a(), tunneling("b", controlPlane, tunnelIs(lost, 99)), tunneling("v", worker), tunneling("w", worker), tunneling("x", worker), tunneling("y", worker))
			NewNotifier(r, woken, timer.NewQueue(clocktesting.NewFakeClock(tunnelStart))).HostChanged(t.Context(), tc.before, tc.after)
			g.Expect(woken.take()).To(ConsistOf(tc.want))
		})
	}
}

// Workers that carry a cluster are woken wherever they are in the list: they end their
// tunnels.
func TestWorkersWithTunnelsAreWoken(t *testing.T) {
	g := NewWithT(t)
	woken := &wakes{}
	const worker = infrav1.RoleWorker
	r := newReader(t, newOwner("c"), tunnelCluster(), tunneling("v", worker), tunneling("w", worker), tunneling("x", worker), tunneling("y", worker),
		tunneling("z", worker, tunnelIs(infrav1.ConnectionConnected, 0)))
	n := NewNotifier(r, woken, timer.NewQueue(clocktesting.NewFakeClock(tunnelStart)))
	n.HostChanged(t.Context(), tunneling("a", infrav1.RoleControlPlane), tunneling("a", infrav1.RoleControlPlane, tunnelIs(infrav1.ConnectionConnected, 0)))
	g.Expect(woken.take()).To(ConsistOf("v", "w", "x", "z"))
}

// Workers are woken when the time of the fallback comes, also in a process that starts in
// between.
func TestFallbackInTime(t *testing.T) {
	const connected = infrav1.ConnectionConnected
	lost := tunneling("a", infrav1.RoleControlPlane, tunnelIs(infrav1.ConnectionDisconnected, 20))
	leaver, machine := tunneling("a", infrav1.RoleControlPlane, tunnelIs(connected, 99)), leaving("a", 20)
	for name, tc := range map[string]struct {
		objects []client.Object
		learn   func(*Notifier)
		// woken are the hosts that the event itself wakes.
		woken []string
	}{
		"lost": {[]client.Object{lost}, func(n *Notifier) {
			n.HostChanged(t.Context(), tunneling("a", infrav1.RoleControlPlane, tunnelIs(connected, 99)), lost)
		}, []string{"v"}},
		"started": {[]client.Object{lost}, func(n *Notifier) { n.HostAdded(t.Context(), lost) }, nil},
		"Machine deleted": {[]client.Object{leaver, machine}, func(n *Notifier) {
			before := machine.DeepCopy()
			before.DeletionTimestamp = nil
			n.MachineUpdated(t.Context(), before, machine)
		}, []string{"v"}},
		"started after its deletion, host first":    {[]client.Object{leaver, machine}, func(n *Notifier) { n.HostAdded(t.Context(), leaver) }, nil},
		"started after its deletion, Machine first": {[]client.Object{leaver, machine}, func(n *Notifier) { n.MachineAdded(t.Context(), machine) }, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			fake := clocktesting.NewFakeClock(tunnelStart)
			r := newReader(t, append(tc.objects, newOwner("c"), tunnelCluster(), tunneling("v", infrav1.RoleWorker))...)
			r.clock = fake
			woken, timers := make(channelWaker, 10), timer.NewQueue(fake)
			go timers.Run(t.Context())
			tc.learn(NewNotifier(r, woken, timers))
			for _, host := range tc.woken {
				g.Expect(<-woken).To(Equal(host), "by the event itself: the fallback is due later")
			}
			g.Eventually(timers.Waits, time.Minute, time.Millisecond).Should(BeTrue())
			fake.Step(10 * time.Second)
			g.Expect(<-woken).To(Equal("v"))
			wants, err := r.WantsTunnel(t.Context(), tunneling("v", infrav1.RoleWorker))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(wants).To(BeTrue())
			g.Eventually(timers.Len, time.Minute, time.Millisecond).Should(BeZero(), "nothing more is to be done")
			g.Expect(woken).To(BeEmpty())
		})
	}
}

func TestDeletionOfAMachineWakesHosts(t *testing.T) {
	g := NewWithT(t)
	woken := &wakes{}
	r := newReader(t, newOwner("c"), tunnelCluster(), tunneling("a", infrav1.RoleControlPlane, serving("10.0.0.1:6443")),
		tunneling("v", infrav1.RoleWorker), tunneling("w", infrav1.RoleWorker))
	n := NewNotifier(r, woken, timer.NewQueue(clocktesting.NewFakeClock(tunnelStart)))
	deleting := func(host string) {
		after := beingDeleted(host)
		before := after.DeepCopy()
		before.DeletionTimestamp = nil
		n.MachineUpdated(t.Context(), before, after)
		n.MachineUpdated(t.Context(), after, after)
	}
	deleting("a")
	g.Expect(woken.take()).To(ConsistOf("a", "v", "w", "v", "w"), "all for their backends, workers to carry the cluster")
	deleting("v")
	g.Expect(woken.take()).To(ConsistOf("v", "w"), "another worker may have to carry the cluster instead")
}
