package host_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/host"
)

// `clusterctl move` pauses the cluster, and then waits two minutes at most until no object
// has the annotation block-move. It must wait for a reset that runs, and for nothing else.
func TestPausedHostBlocksAMoveOnlyWhileItIsReset(t *testing.T) {
	for name, tc := range map[string]struct {
		reset        infrav1.OperationState
		disconnected bool
		want         bool
	}{
		"to be reset":               {"", false, false},
		"to be reset, silent":       {"", true, false},
		"being reset":               {infrav1.OperationRunning, false, true},
		"died during the reset":     {infrav1.OperationRunning, true, false},
		"reset failed":              {infrav1.OperationFailed, false, false},
		"reset":                     {infrav1.OperationSucceeded, false, false},
		"reset is not supported":    {infrav1.OperationUnsupported, false, false},
		"reset, disconnected since": {infrav1.OperationSucceeded, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			cluster, _ := f.Cluster("c")
			owner, _ := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
				o.Finalizers = []string{clusterv1.MachineFinalizer}
			})
			f.Delete(owner)
			h := f.Host("h1", claimed(infrav1.ClaimReleasing), func(h *infrav1.ElementalHost) {
				if tc.reset != "" {
					controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "1", State: tc.reset})
				}
				if tc.disconnected {
					h.Status.Connection.State = infrav1.ConnectionDisconnected
				}
			})
			f.reconcile(h)
			f.Expect(h.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation), "a move that begins now has to wait")
			controllertest.Change(f.Fixture, cluster, pauseCluster)
			f.reconcile(h)
			_, blocked := h.Annotations[clusterctlv1.BlockMoveAnnotation]
			f.Expect(blocked).To(Equal(tc.want))
			f.Client.Forget()
			f.reconcile(h)
			f.Expect(f.Client.Writes()).To(BeEmpty())

			// The end of a move that failed.
			controllertest.Change(f.Fixture, cluster, resumeCluster)
			f.reconcile(h)
			f.Expect(h.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))
		})
	}
}

func pauseCluster(c *clusterv1.Cluster)  { c.Spec.Paused = new(true) }
func resumeCluster(c *clusterv1.Cluster) { c.Spec.Paused = nil }

// While the cluster is paused, the claims of its hosts stay as `clusterctl move` copies them.
func TestClaimsStayWhilePaused(t *testing.T) {
	for name, tc := range map[string]struct {
		host  func(*infrav1.ElementalHost)
		after string
	}{
		"clean": {func(h *infrav1.ElementalHost) {
			claimed(infrav1.ClaimReleasing)(h)
			controllertest.SetOperation(&h.Status, infrav1.HostOperation{Type: infrav1.OperationReset, ID: "1", State: infrav1.OperationSucceeded})
		}, ""},
		"fenced": {func(h *infrav1.ElementalHost) {
			claimed(infrav1.ClaimBound)(h)
			h.Spec.Fence = &infrav1.HostFence{Reason: "dead"}
		}, "Releasing"},
	} {
		for where, pause := range map[string]func(*fixture, *clusterv1.Cluster, *infrav1.ElementalMachine, bool){
			"Cluster": func(f *fixture, c *clusterv1.Cluster, _ *infrav1.ElementalMachine, paused bool) {
				controllertest.Change(f.Fixture, c, map[bool]func(*clusterv1.Cluster){true: pauseCluster, false: resumeCluster}[paused])
			},
			"ElementalMachine": func(f *fixture, _ *clusterv1.Cluster, m *infrav1.ElementalMachine, paused bool) {
				controllertest.Change(f.Fixture, m, func(m *infrav1.ElementalMachine) {
					m.Annotations = map[string]string{}
					if paused {
						m.Annotations[clusterv1.PausedAnnotation] = ""
					}
				})
			},
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				f := newFixture(t)
				cluster, _ := f.Cluster("c")
				machine := &infrav1.ElementalMachine{ObjectMeta: f.Meta("other-than-the-machine")}
				machine.Spec.HostRef = &infrav1.HostReference{Name: "h1", ClaimID: "1"}
				f.Create(machine)
				pause(f, cluster, machine, true)
				h := f.Host("h1", tc.host)
				was := h.Spec.Claim.DeepCopy()
				f.reconcile(h)
				f.Expect(h.Spec.Claim).To(Equal(was))
				pause(f, cluster, machine, false)
				f.reconcile(h)
				if tc.after == "" {
					f.Expect(h.Spec.Claim).To(BeNil())
				} else {
					f.Expect(string(h.Spec.Claim.Phase)).To(Equal(tc.after))
				}
			})
		}
	}
}

// A pause and its end wake the hosts.
func TestPauseWakesHosts(t *testing.T) {
	f := newFixture(t)
	woken := host.PausedOrResumed
	running, paused := &clusterv1.Cluster{}, &clusterv1.Cluster{}
	pauseCluster(paused)
	f.Expect(woken(running, paused)).To(BeTrue())
	f.Expect(woken(paused, running)).To(BeTrue())
	f.Expect(woken(running, running)).To(BeFalse())
	f.Expect(woken(nil, paused)).To(BeTrue())
	f.Expect(woken(nil, running)).To(BeFalse())
	machine, pausedMachine := &infrav1.ElementalMachine{}, &infrav1.ElementalMachine{}
	pausedMachine.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	f.Expect(woken(machine, pausedMachine)).To(BeTrue())
	f.Expect(woken(pausedMachine, machine)).To(BeTrue())
	f.Expect(woken(pausedMachine, pausedMachine)).To(BeFalse())

	f.Host("h1", claimed(infrav1.ClaimBound))
	f.Host("h2", claimed(infrav1.ClaimReleasing))
	f.Host("h3")
	f.Expect(host.HostsOfCluster(f.Ctx, f.reconciler, &clusterv1.Cluster{ObjectMeta: f.Meta("c")})).To(ConsistOf(
		HaveField("Name", "h1"), HaveField("Name", "h2")))
}
