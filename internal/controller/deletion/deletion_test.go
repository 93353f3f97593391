package deletion_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// state is the state of a machine and its host when the deletions begin.
type state struct {
	machine func(*clusterv1.Machine, *infrav1.ElementalMachine)
	prepare func(*scenario)
	// phases are the phases that the claim may go through.
	phases []infrav1.ClaimPhase
}

const (
	free      = infrav1.ClaimPhase("")
	bound     = infrav1.ClaimBound
	held      = infrav1.ClaimHeld
	releasing = infrav1.ClaimReleasing
)

func provisioned(w *scenario) {
	w.Refresh(w.host)
	w.ReportOperation(w.host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
}

func silent(w *scenario) {
	provisioned(w)
	w.SetConnection(w.host, infrav1.ConnectionDisconnected)
}

func fenced(w *scenario) {
	silent(w)
	controllertest.Change(w.Fixture, w.host, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} })
}

func inMaintenance(w *scenario) {
	silent(w)
	controllertest.Change(w.Fixture, w.host, func(h *infrav1.ElementalHost) {
		h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk", Until: metav1.NewTime(w.Clock.Now().Add(timeout / 2))}
	})
}

func states() map[string]state {
	hold := func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) { m.Spec.Release.Policy = infrav1.ReleaseHold }
	waiting := func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "m"}}
	}
	return map[string]state{
		"free":           {machine: waiting, phases: []infrav1.ClaimPhase{free}},
		"bootstrapping":  {phases: []infrav1.ClaimPhase{bound, releasing, free}},
		"provisioned":    {prepare: provisioned, phases: []infrav1.ClaimPhase{bound, releasing, free}},
		"disconnected":   {prepare: silent, phases: []infrav1.ClaimPhase{bound, releasing}},
		"in maintenance": {prepare: inMaintenance, phases: []infrav1.ClaimPhase{bound, releasing}},
		"fenced":         {prepare: fenced, phases: []infrav1.ClaimPhase{releasing}},
		"held":           {machine: hold, prepare: provisioned, phases: []infrav1.ClaimPhase{bound, held}},
		"releasing": {prepare: func(w *scenario) {
			silent(w)
			w.Delete(w.machine)
		}, phases: []infrav1.ClaimPhase{releasing}},
	}
}

// unrelated are the objects whose deletion must not affect hosts.
var unrelated = []string{"ElementalRegistration", "bootstrap Secret", "token Secret", "CA Secret", "kubeconfig Secret"}

// permutations returns all orders of the names.
func permutations(names []string) [][]string {
	if len(names) == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for i, first := range names {
		for _, rest := range permutations(slices.Delete(slices.Clone(names), i, i+1)) {
			out = append(out, append([]string{first}, rest...))
		}
	}
	return out
}

// deleteInOrder deletes the objects one after the other. After each deletion it waits until
// nothing changes any more, and checks the host. At the end no object may be left.
func deleteInOrder(t *testing.T, s state, order []string, vanish bool) {
	t.Helper()
	w := newScenario(t, s, vanish)
	for _, name := range order {
		was := w.host.DeepCopy()
		existed := w.Exists(was)
		if o := w.objects[name]; w.Exists(o) {
			w.Delete(o)
		}
		w.quiesce()
		w.check(s)
		if slices.Contains(unrelated, name) && existed {
			w.Refresh(w.host)
			w.Expect(w.host.ResourceVersion).To(Equal(was.ResourceVersion), "the deletion of %s must not write the host", name)
			w.Expect(plan.For(w.host, plan.Site{}, plan.Cluster{})).To(Equal(plan.For(was, plan.Site{}, plan.Cluster{})))
		}
	}
	// The objects that are left wait for a timeout. Times of deletions are those of the real
	// clock, which may be far ahead on a busy machine.
	for range 20 {
		if len(w.left()) == 0 {
			break
		}
		w.Clock.Step(timeout)
		w.quiesce()
		w.check(s)
	}
	w.Expect(w.left()).To(BeEmpty())
	w.Refresh(w.spare)
	w.Expect(w.spare.Spec.Claim).To(BeNil(), "the reservation must be removed")
}

// check fails the test if the claim has a phase that the state does not permit.
func (w *scenario) check(s state) {
	w.T.Helper()
	if !w.Exists(w.host) {
		return
	}
	phase := free
	if w.host.Spec.Claim != nil {
		phase = w.host.Spec.Claim.Phase
	}
	w.Expect(s.phases).To(ContainElement(phase))
}

// TestAllOrders deletes the objects that a machine depends on in all orders.
// With -short it tries a sixth of the orders: one that begins with each object.
func TestAllOrders(t *testing.T) {
	for name, s := range states() {
		for i, order := range permutations([]string{"Cluster", "Machine", "ElementalMachine", "ElementalHost"}) {
			if testing.Short() && i%6 != len(name)%6 {
				continue
			}
			// The garbage collector deletes the other objects with their owners.
			t.Run(name+"/"+strings.Join(order, ","), func(t *testing.T) {
				t.Parallel()
				deleteInOrder(t, s, append(slices.Clone(order), "ElementalRegistration"), false)
			})
		}
	}
}

// TestRandomOrders deletes all objects in random orders, with and without the finalizers of
// Cluster API.
func TestRandomOrders(t *testing.T) {
	const perState = 2
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, s := range states() {
		for n := range uint64(perState) {
			random := rand.New(rand.NewPCG(seed, n))
			order := append([]string{"Cluster", "Machine", "ElementalMachine", "ElementalCluster", "ElementalHost"}, unrelated...)
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			vanish := n%2 == 1
			t.Run(fmt.Sprintf("%s/%d %s, vanish %t", name, seed, strings.Join(order, ","), vanish), func(t *testing.T) {
				t.Parallel()
				deleteInOrder(t, s, order, vanish)
			})
		}
	}
}
