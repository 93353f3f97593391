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
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// world is everything that the managers are not.
type world struct {
	*controllertest.Fixture

	ctx   context.Context //nolint:containedctx // the test's
	rand  *rand.Rand
	clock *clocktesting.FakeClock
	times *times
	// is what the API server has; stale tells that it has to be read anew.
	is    view
	stale bool

	hosts    []*host
	clusters map[string]*workload
	// data is the bootstrap data of each Machine.
	data map[string]data
	// cut are pairs of hosts that don't reach each other.
	cut map[[2]string]bool
	// addresses that were given out so far.
	addresses int

	manager *manager
	referee *referee
	// story is what happened, told when a test fails.
	story []string
}

// data is bootstrap data.
type data struct {
	endpoint     string
	controlPlane bool
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	f := controllertest.New(t, env)
	w := &world{
		Fixture: f, ctx: t.Context(), clock: f.Clock,
		rand:     rand.New(rand.NewPCG(seed, seed)),
		clusters: map[string]*workload{}, data: map[string]data{}, cut: map[[2]string]bool{},
	}
	w.times = &times{now: w.clock.Now, created: map[types.UID]metav1.Time{}, deleted: map[types.UID]metav1.Time{}}
	w.referee = newReferee(w)
	t.Cleanup(func() {
		if t.Failed() {
			for _, line := range w.story[max(0, len(w.story)-storyLines):] {
				t.Log(line)
			}
		}
	})
	for i := range fleet {
		w.addHost(fmt.Sprintf("host-%02d", i))
	}
	w.addCluster("c", "", 3, 2)
	w.addCluster("u", "api.example.org", 1, 1)
	w.stale = true
	w.look()
	w.manager = w.startManager()
	return w
}

// note adds to the story.
func (w *world) note(format string, args ...any) {
	w.story = append(w.story, w.clock.Now().UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (w *world) oneIn(n int) bool { return w.rand.IntN(n) == 0 }

// pick returns one of several, or false if there are none.
func pick[T any](w *world, from []T) (T, bool) {
	if len(from) == 0 {
		var none T
		return none, false
	}
	return from[w.rand.IntN(len(from))], true
}

// address gives out an address that nobody ever had.
func (w *world) address() string {
	w.addresses++
	return fmt.Sprintf("10.%d.%d.%d", w.addresses>>16&0xff, w.addresses>>8&0xff, w.addresses&0xff)
}

func (w *world) addHost(name string) {
	h := &host{name: name, address: w.address(), on: true, online: true, heard: w.clock.Now()}
	h.forget()
	w.hosts = append(w.hosts, h)
	w.Host(name, func(o *infrav1.ElementalHost) {
		o.Status.Addresses = addresses(h.address)
		o.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset", "Endpoint", "Files"}}
	})
}

func addresses(ip string) []clusterv1.MachineAddress {
	return []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: ip}}
}

// host returns the one of that name.
func (w *world) host(name string) *host {
	i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.name == name })
	if i < 0 {
		return nil
	}
	return w.hosts[i]
}

// look reads what the API server has, if something was made or deleted: what is
// changed is learned from the answer.
func (w *world) look() {
	w.T.Helper()
	if !w.stale {
		return
	}
	w.stale = false
	is, err := read(w.ctx, w.Admin, w.Namespace, w.times)
	w.Expect(err).NotTo(HaveOccurred())
	w.is = is
}

// turn lets the clock run on and everybody do something.
func (w *world) turn(passes time.Duration) {
	w.T.Helper()
	w.clock.Step(passes)
	for _, h := range w.hosts {
		w.agent(h)
	}
	w.connections()
	for _, name := range slices.Sorted(maps.Keys(w.clusters)) {
		w.core(w.clusters[name])
	}
	const rounds = 4
	for range rounds {
		w.look()
		if !w.manager.run() {
			break
		}
	}
	w.referee.check()
}

// members of a cluster's etcd, those with power first.
func (w *world) members(cluster string) (on, off []*host) {
	for _, h := range w.hosts {
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

// serves tells whether a host's API server is ready, for which etcd needs a
// majority.
func (w *world) serves(h *host) bool {
	if !h.on || h.node == nil || !h.node.member {
		return false
	}
	on, off := w.members(h.node.cluster)
	return len(on) > len(off)
}

// reaches tells whether a cluster's API server answers at an endpoint, seen from
// a host or, if that is nil, from the management cluster.
func (w *world) reaches(from *host, endpoint string, c *workload) bool {
	if c == nil {
		return false
	}
	name, _, err := net.SplitHostPort(endpoint)
	w.Expect(err).NotTo(HaveOccurred(), endpoint)
	if name == c.user && name != "" {
		// A load balancer of the user's.
		return slices.ContainsFunc(w.hosts, func(h *host) bool { return h.node != nil && h.node.cluster == c.name && w.serves(h) })
	}
	for _, h := range w.hosts {
		switch {
		case h.address != name || !w.serves(h) || h.node.cluster != c.name || !slices.Contains(h.node.certificate, name):
		case h == from:
			return true
		case h.rejects == endpoint:
		case from != nil && (w.cut[[2]string{from.name, h.name}] || w.cut[[2]string{h.name, from.name}]):
		default:
			return true
		}
	}
	return false
}

// change changes spec or metadata of an object that is as last seen; it returns
// nil if that is gone.
func change[T client.Object](w *world, name string, how func(T)) {
	w.T.Helper()
	o, ok := find[T](w.is, name)
	if !ok {
		return
	}
	after, ok := o.DeepCopyObject().(T)
	w.Expect(ok).To(BeTrue())
	how(after)
	w.saw(o, after, w.Admin.Patch(w.ctx, after, client.MergeFrom(o)))
}

// changeStatus is change for the status.
func changeStatus[T client.Object](w *world, name string, how func(T)) {
	w.T.Helper()
	o, ok := find[T](w.is, name)
	if !ok {
		return
	}
	after, ok := o.DeepCopyObject().(T)
	w.Expect(ok).To(BeTrue())
	how(after)
	if reflect.DeepEqual(o, after) {
		return
	}
	w.saw(o, after, w.Admin.Status().Patch(w.ctx, after, client.MergeFrom(o)))
}

// saw remembers the outcome of a write.
func (w *world) saw(before, after client.Object, err error) {
	w.T.Helper()
	if apierrors.IsNotFound(err) {
		w.stale = true
		return
	}
	w.Expect(err).NotTo(HaveOccurred(), before.GetName())
	w.learn(after)
}

// learn remembers an object as the API server has it now.
func (w *world) learn(o client.Object) {
	w.times.correct(o)
	of, ok := w.is[reflect.TypeOf(o)]
	switch {
	case !ok:
		w.stale = true
	case o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0:
		delete(of, client.ObjectKeyFromObject(o))
	default:
		if after, ok := o.DeepCopyObject().(client.Object); ok {
			of[client.ObjectKeyFromObject(o)] = after
		}
	}
}

// changeHost changes a host's status as the agent API does.
func (w *world) changeHost(name string, how func(*infrav1.ElementalHost)) {
	w.T.Helper()
	changeStatus(w, name, func(o *infrav1.ElementalHost) {
		how(o)
		hoststatus.Update(o, metav1.NewTime(w.clock.Now()))
	})
}
