package endpoint

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// eventBuffer is larger than the number of Events of one reconciliation.
const eventBuffer = 1000

// simulation is everything except the managers: hosts, network, workload clusters and
// Cluster API.
type simulation struct {
	*controllertest.Fixture

	ctx context.Context // the test's
	// server is the API server.
	server client.WithWatch
	rand   *rand.Rand
	clock  *clocktesting.FakeClock
	times  *times
	// state is the content of the API server. stale means that it must be read again.
	state objectCache
	stale bool

	hosts    []*host
	clusters map[string]*workload
	// data is the bootstrap data of each Machine.
	data map[string]data
	// cut has the pairs of hosts that can't reach each other.
	cut map[[2]string]bool
	// constrained: some hosts are held when their Machine is deleted, hosts are cordoned and
	// in maintenance, the control plane selects hosts, and workers have a failure domain.
	constrained bool
	// grace is the time without contact after which a host is disconnected.
	grace time.Duration
	// quiet: a failure logs no history.
	quiet bool
	// replaced counts the Machines that the manager deleted because their failure domain had
	// no host.
	replaced int64
	// addresses counts the addresses assigned so far.
	addresses int

	manager *manager
	checker *checker
	// history has one line per event; its end is logged when the test fails.
	history []string
}

// data is bootstrap data.
type data struct {
	endpoint     string
	controlPlane bool
}

func newSimulation(t *testing.T, server apiServer, seed uint64, options ...func(*simulation)) *simulation {
	t.Helper()
	f := &controllertest.Fixture{
		WithT: NewWithT(t), T: t, Ctx: t.Context(), Namespace: server.namespace, Admin: server.WithWatch,
		Clock: server.clock, Recorder: events.NewFakeRecorder(eventBuffer),
	}
	s := &simulation{
		Fixture: f, ctx: t.Context(), clock: f.Clock, server: server.WithWatch, grace: disconnectedAfter,
		rand:     rand.New(rand.NewPCG(seed, seed)),
		clusters: map[string]*workload{}, data: map[string]data{}, cut: map[[2]string]bool{},
	}
	s.times = &times{now: s.clock.Now, created: map[types.UID]metav1.Time{}, deleted: map[types.UID]metav1.Time{}}
	s.checker = newChecker(s)
	t.Cleanup(func() {
		if t.Failed() && !s.quiet {
			for _, line := range s.history[max(0, len(s.history)-historyLines):] {
				t.Log(line)
			}
		}
	})
	for _, set := range options {
		set(s)
	}
	for i := range hostCount {
		s.addHost(fmt.Sprintf("host-%02d", i))
	}
	s.addCluster("c", "", 3, 2)
	s.addCluster("u", "api.example.org", 1, 1)
	s.stale = true
	s.readState()
	s.manager = s.startManager()
	return s
}

// record adds a line to the history.
func (s *simulation) record(format string, args ...any) {
	s.history = append(s.history, s.clock.Now().UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (s *simulation) oneIn(n int) bool { return s.rand.IntN(n) == 0 }

// pick returns a random element, or false if from is empty.
func pick[T any](s *simulation, from []T) (T, bool) {
	if len(from) == 0 {
		var none T
		return none, false
	}
	return from[s.rand.IntN(len(from))], true
}

// address returns an address that no host ever had.
func (s *simulation) address() string {
	s.addresses++
	return fmt.Sprintf("10.%d.%d.%d", s.addresses>>16&0xff, s.addresses>>8&0xff, s.addresses&0xff)
}

func (s *simulation) addHost(name string) {
	zone, _ := pick(s, zones())
	isServer := !s.constrained || len(s.hosts) < minServers || !s.oneIn(3)
	h := &host{name: name, address: s.address(), zone: zone, isServer: isServer, on: true, online: true, lastContact: s.clock.Now(), knowsQuestion: len(s.hosts)%3 > 0}
	capabilities := []string{"Bootstrap", "Reset", "Endpoint", "Files"}
	if h.knowsQuestion {
		capabilities = append(capabilities, "ReportEndpoint")
	}
	h.install()
	s.hosts = append(s.hosts, h)
	s.Host(name, func(o *infrav1.ElementalHost) {
		o.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: h.zone, classLabel: "other"}
		if h.isServer {
			o.Labels[classLabel] = serverClass
		}
		o.Status.Addresses = addresses(h.address)
		o.Status.Agent = &infrav1.HostAgent{Capabilities: capabilities}
	})
}

func addresses(ip string) []clusterv1.MachineAddress {
	return []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: ip}}
}

// host returns the host with a name, or nil.
func (s *simulation) host(name string) *host {
	i := slices.IndexFunc(s.hosts, func(h *host) bool { return h.name == name })
	if i < 0 {
		return nil
	}
	return s.hosts[i]
}

// readState reads all objects again after a create or a delete. Changes of objects
// don't need it: their result is in the response.
func (s *simulation) readState() {
	s.T.Helper()
	if !s.stale {
		return
	}
	s.stale = false
	is, err := read(s.ctx, s.Admin, s.Namespace, s.times)
	s.Expect(err).NotTo(HaveOccurred())
	s.state = is
}

// step advances the clock and lets every part of the simulation act once.
func (s *simulation) step(d time.Duration) {
	s.T.Helper()
	s.clock.Step(d)
	for _, h := range s.hosts {
		s.agent(h)
	}
	s.updateConnections()
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		s.reconcileCluster(s.clusters[name])
	}
	const rounds = 4
	for range rounds {
		s.readState()
		if !s.manager.run() {
			break
		}
	}
	s.checker.checkState()
}

// members returns the etcd members of a cluster: hosts with power, hosts without.
func (s *simulation) members(cluster string) (on, off []*host) {
	for _, h := range s.hosts {
		if h.node == nil || h.node.cluster != cluster || !h.node.member {
			continue
		}
		if h.on {
			on = append(on, h)
		} else {
			off = append(off, h)
		}
	}
	return on, off
}

// serves reports whether a host's API server is ready, which requires an etcd
// majority.
func (s *simulation) serves(h *host) bool {
	if !h.on || h.node == nil || !h.node.member {
		return false
	}
	on, off := s.members(h.node.cluster)
	return len(on) > len(off)
}

// reaches reports whether a cluster's API server answers at an endpoint when called
// from a host or, if from is nil, from the management cluster.
func (s *simulation) reaches(from *host, endpoint string, c *workload) bool {
	if c == nil {
		return false
	}
	name, _, err := net.SplitHostPort(endpoint)
	s.Expect(err).NotTo(HaveOccurred(), endpoint)
	if name == c.user && name != "" {
		// The user's own load balancer.
		return slices.ContainsFunc(s.hosts, func(h *host) bool { return h.node != nil && h.node.cluster == c.name && s.serves(h) })
	}
	for _, h := range s.hosts {
		switch {
		case h.address != name || !s.serves(h) || h.node.cluster != c.name || !slices.Contains(h.node.certificate, name):
		case h == from:
			return true
		case h.rejects == endpoint:
		case from != nil && (s.cut[[2]string{from.name, h.name}] || s.cut[[2]string{h.name, from.name}]):
		default:
			return true
		}
	}
	return false
}

// change patches spec or metadata of an object. It does nothing if the object is gone.
func change[T client.Object](s *simulation, name string, how func(T)) {
	s.T.Helper()
	o, ok := find[T](s.state, name)
	if !ok {
		return
	}
	after, ok := o.DeepCopyObject().(T)
	s.Expect(ok).To(BeTrue())
	how(after)
	s.wrote(o, after, s.Admin.Patch(s.ctx, after, client.MergeFrom(o)))
}

// changeStatus patches the status of an object. It does nothing if the object is gone.
func changeStatus[T client.Object](s *simulation, name string, how func(T)) {
	s.T.Helper()
	o, ok := find[T](s.state, name)
	if !ok {
		return
	}
	after, ok := o.DeepCopyObject().(T)
	s.Expect(ok).To(BeTrue())
	how(after)
	if reflect.DeepEqual(o, after) {
		return
	}
	s.wrote(o, after, s.Admin.Status().Patch(s.ctx, after, client.MergeFrom(o)))
}

// wrote records the outcome of a write.
func (s *simulation) wrote(before, after client.Object, err error) {
	s.T.Helper()
	if apierrors.IsNotFound(err) {
		s.stale = true
		return
	}
	s.Expect(err).NotTo(HaveOccurred(), before.GetName())
	s.learn(after)
}

// learn records an object as the API server returned it.
func (s *simulation) learn(o client.Object) {
	s.times.correct(o)
	of, ok := s.state[reflect.TypeOf(o)]
	switch {
	case !ok:
		s.stale = true
	case o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0:
		delete(of, client.ObjectKeyFromObject(o))
	default:
		if after, ok := o.DeepCopyObject().(client.Object); ok {
			of[client.ObjectKeyFromObject(o)] = after
		}
	}
}

// changeHost patches a host's status as the agent API does.
func (s *simulation) changeHost(name string, how func(*infrav1.ElementalHost)) {
	s.T.Helper()
	changeStatus(s, name, func(o *infrav1.ElementalHost) {
		how(o)
		hoststatus.Update(o, metav1.NewTime(s.clock.Now()))
	})
}
