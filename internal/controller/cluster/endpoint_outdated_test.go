package cluster_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// failOver moves the endpoint from h1, which dies, to h2, and completes the move.
func (f *fleet) failOver() {
	f.T.Helper()
	f.stop("h1")
	f.Clock.Step(failoverAfter)
	f.converge()
	f.Expect(f.endpoint().Host).To(Equal("10.0.0.2"))
	f.Expect(f.lastMove().CompletedAt.IsZero()).To(BeFalse())
}

func withoutData(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = nil }

// joiningMachine creates a Machine with bootstrap data of kubeadm, and with an owner that
// would replace it.
func (f *fleet) joiningMachine(name, data string, changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
	f.T.Helper()
	f.Create(&corev1.Secret{ObjectMeta: f.Meta(name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte(data)}})
	m, _ := f.Machine("c", name, func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name}
		o.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "ms", UID: "1", Controller: new(true),
		}}
		for _, change := range changes {
			change(o)
		}
	})
	return m
}

// claimedBy creates a host that the Machine has claimed. Its bootstrap is in that state;
// blank means not started.
func (f *fleet) claimedBy(n int, machine string, state infrav1.OperationState) *infrav1.ElementalHost {
	f.T.Helper()
	host := f.host(fmt.Sprintf("h%d", n), fmt.Sprintf("10.0.0.%d", n), func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ID: machine, ClusterName: "c", MachineName: machine, Phase: infrav1.ClaimBound, Role: infrav1.RoleWorker}
	})
	if state != "" {
		f.ReportOperation(host, infrav1.OperationBootstrap, state)
	}
	return host
}

func TestMachinesWithOutdatedDataAreReplaced(t *testing.T) {
	f := newFleet(t)
	const data = "apiServerEndpoint: 10.0.0.1:6443"
	gone := map[string]*clusterv1.Machine{
		"without a host": f.joiningMachine("a", data),
		"not started":    f.joiningMachine("b", data),
		"failed":         f.joiningMachine("c1", data),
		"without data":   f.joiningMachine("i", data, withoutData),
	}
	f.claimedBy(11, "b", "")
	f.claimedBy(12, "c1", infrav1.OperationFailed)
	stay := map[string]*clusterv1.Machine{
		"running":   f.joiningMachine("e", data),
		"a Node":    f.joiningMachine("f", data),
		"ownerless": f.joiningMachine("g", data, func(m *clusterv1.Machine) { m.OwnerReferences = nil }),
		"of another bootstrap provider": f.joiningMachine("h", data, func(m *clusterv1.Machine) {
			m.Spec.Bootstrap.ConfigRef.Kind = "RKE2Config"
		}),
	}
	f.claimedBy(13, "e", infrav1.OperationRunning)
	f.claimedBy(14, "f", infrav1.OperationSucceeded)
	f.reconcileUntilStable()
	for name, m := range gone {
		f.Expect(f.Exists(m)).To(BeTrue(), name)
	}
	f.Clock.Step(time.Hour)
	f.moveByDeletion()
	for name, m := range gone {
		f.Expect(f.Exists(m)).To(BeFalse(), name)
	}
	for name, m := range stay {
		f.Expect(f.Exists(m)).To(BeTrue(), name)
	}
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Deleted Machine a: its bootstrap data is for a former endpoint")))
}

// A bootstrap provider with an outdated cache may write data of the former endpoint shortly
// after the move. Data that is written later is not searched.
func TestMachinesWithStaleDataAreReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		late time.Duration
		want bool
	}{
		"the former endpoint, soon":    {"apiServerEndpoint: 10.0.0.1:6443", 2 * time.Second, false},
		"the same in Ignition":         {"apiServerEndpoint%3A%2010.0.0.1%3A6443", 2 * time.Second, false},
		"the new endpoint":             {"apiServerEndpoint: 10.0.0.2:6443", 2 * time.Second, true},
		"the former endpoint, later":   {"NO_PROXY=10.0.0.1:6443", time.Minute, true},
		"before the move, any content": {"compressed", -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			m := f.joiningMachine("a", tc.data)
			// The API server's clock can't be set, so the move is in the past.
			f.Refresh(m)
			f.Clock.SetTime(m.CreationTimestamp.Add(-tc.late))
			f.moveByDeletion()
			f.Expect(f.Exists(m)).To(Equal(tc.want))
		})
	}
}

func TestManyMachinesAreReplacedInBatches(t *testing.T) {
	f := newFleet(t)
	for i := range 12 {
		f.joiningMachine(fmt.Sprintf("j%d", i), "")
	}
	f.Clock.Step(time.Hour)
	f.Delete(f.machines["h1"])
	result := f.reconcile()
	deleted := 0
	for _, w := range f.Client.Writes() {
		if w.Verb == "delete" {
			deleted++
		}
	}
	f.Expect(deleted).To(Equal(10))
	f.Expect(result.RequeueAfter).To(Equal(time.Second))
	f.reconcileUntilStable()
	list := &clusterv1.MachineList{}
	f.Expect(f.Admin.List(f.Ctx, list)).To(Succeed())
	for _, m := range list.Items {
		f.Expect(m.Namespace == f.Namespace && m.Name[0] == 'j').To(BeFalse())
	}
}

// The bootstrap provider stores the endpoint before it connects to the cluster, and can't
// connect for a while after a move. Its data then names the former endpoint however late
// it is written.
func TestMachinesWhoseDataIsWrittenLateAreReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		// created is the Machine's age when the endpoint moves.
		created time.Duration
		data    string
		want    bool
	}{
		"Machine from before the move":                  {10 * time.Second, "apiServerEndpoint: 10.0.0.1:6443", false},
		"Machine of an outdated cache":                  {-10 * time.Second, "apiServerEndpoint: 10.0.0.1:6443", false},
		"Machine after the move, with the new endpoint": {-10 * time.Second, "apiServerEndpoint: 10.0.0.2:6443", true},
		"later Machine":                                 {-time.Minute, "NO_PROXY=10.0.0.1:6443", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			m := f.joiningMachine("a", tc.data, withoutData)
			// The API server's clock can't be set, so the move is in the past.
			f.Refresh(m)
			f.Clock.SetTime(m.CreationTimestamp.Add(tc.created - failoverAfter))
			f.failOver()
			f.Clock.Step(45 * time.Second)
			if f.Exists(m) {
				if tc.created > -30*time.Second {
					f.Expect(f.reconcile().RequeueAfter).To(Equal(30*time.Second), "no event tells that the data is written")
				}
				controllertest.Change(f.Fixture, m, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = new("a") })
				f.reconcileUntilStable()
			}
			f.Expect(f.Exists(m)).To(Equal(tc.want))
		})
	}
}

// A bootstrap that runs during the move may yet succeed. It has minutes until it fails.
func TestMachineThatFailsLongAfterTheMoveIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		result infrav1.OperationState
		want   bool
	}{
		"failed":    {infrav1.OperationFailed, false},
		"succeeded": {infrav1.OperationSucceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			m := f.joiningMachine("a", "apiServerEndpoint: 10.0.0.1:6443")
			host := f.claimedBy(11, "a", infrav1.OperationRunning)
			f.Clock.SetTime(time.Now().Add(time.Hour))
			f.failOver()
			f.Clock.Step(5 * time.Minute)
			f.reconcileUntilStable()
			f.Expect(f.Exists(m)).To(BeTrue())
			f.ReportOperation(host, infrav1.OperationBootstrap, tc.result)
			f.reconcileUntilStable()
			f.Expect(f.Exists(m)).To(Equal(tc.want))
		})
	}
}
