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

// state is what a host is at when the deletions begin.
type state struct {
	machine func(*clusterv1.Machine, *infrav1.ElementalMachine)
	prepare func(*world)
	// phases that the claim may go through; nothing else may become of the host.
	phases []infrav1.ClaimPhase
}

const (
	free      = infrav1.ClaimPhase("")
	bound     = infrav1.ClaimBound
	held      = infrav1.ClaimHeld
	releasing = infrav1.ClaimReleasing
)

func provisioned(w *world) {
	w.Refresh(w.host)
	w.ReportOperation(w.host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
}

func silent(w *world) {
	provisioned(w)
	w.SetConnection(w.host, infrav1.ConnectionDisconnected)
}

func fenced(w *world) {
	silent(w)
	controllertest.Change(w.Fixture, w.host, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "dead"} })
}

func inMaintenance(w *world) {
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
		"silent":         {prepare: silent, phases: []infrav1.ClaimPhase{bound, releasing}},
		"in maintenance": {prepare: inMaintenance, phases: []infrav1.ClaimPhase{bound, releasing}},
		"fenced":         {prepare: fenced, phases: []infrav1.ClaimPhase{releasing}},
		"held":           {machine: hold, prepare: provisioned, phases: []infrav1.ClaimPhase{bound, held}},
		"releasing": {prepare: func(w *world) {
			silent(w)
			w.Delete(w.machine)
		}, phases: []infrav1.ClaimPhase{releasing}},
	}
}

// bystanders are deleted without any consequence for hosts.
var bystanders = []string{"ElementalRegistration", "bootstrap Secret", "token Secret", "CA Secret", "kubeconfig Secret"}

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

// deleteInOrder deletes the objects one after the other, everybody coming to rest
// in between, and checks what must hold all the time and in the end.
func deleteInOrder(t *testing.T, s state, order []string, vanish bool) {
	t.Helper()
	w := newWorld(t, s, vanish)
	for _, name := range order {
		was := w.host.DeepCopy()
		there := w.Exists(was)
		if o := w.objects[name]; w.Exists(o) {
			w.Delete(o)
		}
		w.quiesce()
		w.check(s)
		if slices.Contains(bystanders, name) && there {
			w.Refresh(w.host)
			w.Expect(w.host.ResourceVersion).To(Equal(was.ResourceVersion), "%s is deleted: the host is not even written", name)
			w.Expect(plan.For(w.host, plan.Site{}, plan.Cluster{})).To(Equal(plan.For(was, plan.Site{}, plan.Cluster{})))
		}
	}
	// Whatever still waits waits for time.
	for range 3 {
		if len(w.left()) == 0 {
			break
		}
		w.Clock.Step(timeout)
		w.quiesce()
		w.check(s)
	}
	w.Expect(w.left()).To(BeEmpty())
	w.Refresh(w.spare)
	w.Expect(w.spare.Spec.Claim).To(BeNil(), "reservations are given back")
}

// check is what holds at any time: nothing becomes of a host but what its state
// permits.
func (w *world) check(s state) {
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

// All orders of what a machine depends on.
func TestAllOrders(t *testing.T) {
	for name, s := range states() {
		for _, order := range permutations([]string{"Cluster", "Machine", "ElementalMachine", "ElementalHost"}) {
			// What nobody deletes is deleted with its owner.
			t.Run(name+"/"+strings.Join(order, ","), func(t *testing.T) {
				t.Parallel()
				deleteInOrder(t, s, append(slices.Clone(order), "ElementalRegistration"), false)
			})
		}
	}
}

// Random orders of everything, with and without Cluster API's help.
func TestRandomOrders(t *testing.T) {
	const perState = 2
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, s := range states() {
		for n := range uint64(perState) {
			random := rand.New(rand.NewPCG(seed, n))
			order := append([]string{"Cluster", "Machine", "ElementalMachine", "ElementalCluster", "ElementalHost"}, bystanders...)
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			vanish := n%2 == 1
			t.Run(fmt.Sprintf("%s/%d %s, vanish %t", name, seed, strings.Join(order, ","), vanish), func(t *testing.T) {
				t.Parallel()
				deleteInOrder(t, s, order, vanish)
			})
		}
	}
}
