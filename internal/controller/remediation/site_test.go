package remediation_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func request(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

func site(name string) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) { h.Labels = map[string]string{infrav1.DefaultFailureDomainLabel: name} }
}

func TestSilentHostIsReplacedInTime(t *testing.T) {
	f := newFixture(t)
	f.node("witness")
	n := f.node("n")
	n.disconnect()
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	n.expect(infrav1.DisconnectedReason, recovery)
	f.Clock.Step(recovery - time.Second)
	n.expect(infrav1.DisconnectedReason, time.Second)
	f.Expect(n.toBeReplaced()).To(BeFalse())
	f.Clock.Step(time.Second)
	n.expect(infrav1.ReplacingReason, 0)
	f.Expect(n.toBeReplaced()).To(BeTrue())
	f.Expect(n.host.Spec.Reboot).To(BeNil())
}

// A host that returns is given the time to become a healthy Node again before it is
// rebooted.
func TestSilentHostThatReturns(t *testing.T) {
	f := newFixture(t)
	f.node("witness")
	n := f.node("n")
	n.disconnect()
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	n.expect(infrav1.DisconnectedReason, recovery)
	f.Clock.Step(recovery - time.Second)
	n.connect()
	n.expect(infrav1.RecoveringReason, recovery)
	f.Expect(n.host.Spec.Reboot).To(BeNil())
	f.Clock.Step(recovery)
	n.expect(infrav1.RebootRequestedReason, recovery)
}

// A host that disconnects for its reboot has the full recovery time twice: from when it
// disconnects, and from when it connects again.
func TestRebootThatTakesLong(t *testing.T) {
	f := newFixture(t)
	f.node("witness")
	n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
	n.expect(infrav1.RebootRequestedReason, recovery)
	n.report(infrav1.OperationRunning)
	f.Clock.Step(recovery / 2)
	n.disconnect()
	n.expect(infrav1.DisconnectedReason, recovery)
	f.Clock.Step(recovery - time.Second)
	n.connect()
	n.report(infrav1.OperationSucceeded)
	n.expect(infrav1.RebootedReason, recovery)
	f.Expect(n.toBeReplaced()).To(BeFalse())
}

// No host is remediated while its site is offline. When the site is online again, the
// recovery time of all hosts starts anew.
func TestOfflineSite(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster func(*fixture) (subject *node, others []*node)
	}{
		"whole cluster": {func(f *fixture) (*node, []*node) {
			return f.node("n"), []*node{f.node("a"), f.node("b")}
		}},
		"only host of the cluster": {func(f *fixture) (*node, []*node) { return f.node("n"), nil }},
		"one domain of several": {func(f *fixture) (*node, []*node) {
			f.node("far", site("b"))
			return f.node("n", site("a")), []*node{f.node("near", site("a"))}
		}},
		"domain by another label": {func(f *fixture) (*node, []*node) {
			infraCluster := &infrav1.ElementalCluster{ObjectMeta: f.Meta("c")}
			controllertest.Change(f.Fixture, infraCluster, func(c *infrav1.ElementalCluster) { c.Spec.FailureDomains.HostLabel = "shop" })
			shop := func(name string) func(*infrav1.ElementalHost) {
				return func(h *infrav1.ElementalHost) {
					h.Labels = map[string]string{"shop": name, infrav1.DefaultFailureDomainLabel: name + "-" + h.Name}
				}
			}
			f.node("far", shop("b"))
			return f.node("n", shop("a")), []*node{f.node("near", shop("a"))}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			n, others := tc.cluster(f)
			for _, node := range append(others, n) {
				node.disconnect()
			}
			n.unhealthy(infrav1.ElementalRemediationSpec{})
			n.expect(infrav1.SiteDarkReason, 0)
			f.Clock.Step(24 * time.Hour)
			n.expect(infrav1.SiteDarkReason, 0)
			f.Expect(n.toBeReplaced()).To(BeFalse())
			f.Expect(f.outcomes()).To(Equal(map[string]float64{"site_dark": 1}))

			if len(others) > 0 {
				t.Log("Another host returns first")
				others[0].connect()
				n.expect(infrav1.DisconnectedReason, recovery)
				f.Clock.Step(recovery - time.Second)
			}
			n.connect()
			n.expect(infrav1.RecoveringReason, recovery)
			f.Expect(n.host.Spec.Reboot).To(BeNil())
		})
	}
}

// The recovery time counts from the last return of a witness, also if the site was offline
// only between two reconciles.
func TestOfflineAgain(t *testing.T) {
	f := newFixture(t)
	w, n := f.node("witness"), f.node("n")
	n.disconnect()
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	n.expect(infrav1.DisconnectedReason, recovery)
	f.Clock.Step(recovery - time.Second)
	w.disconnect()
	f.Clock.Step(time.Hour)
	w.connect()
	n.expect(infrav1.DisconnectedReason, recovery)
	f.Expect(n.toBeReplaced()).To(BeFalse())
}

// A host of the failure domain that is disconnected for another reason does not show that
// the site is offline.
func TestDisconnectedHostsThatAreNoWitnesses(t *testing.T) {
	for name, change := range map[string]func(*infrav1.ElementalHost){
		"releasing":   func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing },
		"fenced":      func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} },
		"locked":      func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: "Cloned"} },
		"rejected":    func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected },
		"maintenance": func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"} },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.node("far", site("b"))
			f.node("near", site("a"), change).disconnect()
			n := f.node("n", site("a"))
			n.disconnect()
			n.unhealthy(infrav1.ElementalRemediationSpec{})
			n.expect(infrav1.DisconnectedReason, recovery)
		})
	}
}

// Time during which no manager was running does not count as waiting time.
func TestManagerWasDown(t *testing.T) {
	f := newFixture(t)
	f.node("witness")
	n := f.node("n")
	n.disconnect()
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	f.Clock.Step(time.Hour)
	n.expect(infrav1.DisconnectedReason, recovery)
}

func TestSuspended(t *testing.T) {
	for reason, tc := range map[string]struct{ begin, end func(*infrav1.ElementalHost) }{
		infrav1.MaintenanceReason: {
			func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "disk"} },
			func(h *infrav1.ElementalHost) { h.Spec.Maintenance = nil },
		},
		infrav1.FencedReason: {
			func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} },
			func(h *infrav1.ElementalHost) { h.Spec.Fence = nil },
		},
		infrav1.IdentityClonedReason: {
			func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: "Cloned"} },
			func(h *infrav1.ElementalHost) { h.Spec.Lock = nil },
		},
	} {
		t.Run(reason, func(t *testing.T) {
			f := newFixture(t)
			n := f.node("n", tc.begin).unhealthy(infrav1.ElementalRemediationSpec{})
			n.expect(reason, 0)
			f.Clock.Step(24 * time.Hour)
			n.expect(reason, 0)
			f.Expect(n.host.Spec.Reboot).To(BeNil())
			f.Expect(n.toBeReplaced()).To(BeFalse())
			f.Expect(f.outcomes()).To(Equal(map[string]float64{"stood_aside": 1}))
			controllertest.Change(f.Fixture, n.host, tc.end)
			n.expect(infrav1.RecoveringReason, recovery)
			f.Clock.Step(recovery)
			n.expect(infrav1.RebootRequestedReason, recovery)
		})
	}
}

func TestNothingToRemediate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*node)
		reason string
	}{
		"Machine is being deleted": {func(n *node) {
			controllertest.Change(n.f.Fixture, n.owner, func(o *clusterv1.Machine) { o.Finalizers = []string{clusterv1.MachineFinalizer} })
			n.f.Delete(n.owner)
		}, infrav1.DeletingReason},
		"Machine does not exist":             {func(n *node) { n.f.Delete(n.owner) }, infrav1.MachineNotFoundReason},
		"infrastructure does not exist":      {func(n *node) { n.f.Delete(n.machine) }, infrav1.NoHostReason},
		"infrastructure of another provider": {func(n *node) { n.anotherKind() }, infrav1.NoHostReason},
		"host does not exist":                {func(n *node) { n.f.Delete(n.host) }, infrav1.HostMissingReason},
		"host is claimed under another claim ID": {func(n *node) {
			controllertest.Change(n.f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Claim.ID = "other" })
		}, infrav1.HostMissingReason},
		"Machine has no owner that would replace it": {func(n *node) {
			controllertest.Change(n.f.Fixture, n.owner, func(o *clusterv1.Machine) { o.OwnerReferences = nil })
			controllertest.Change(n.f.Fixture, n.host, func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalPending })
		}, infrav1.NoReplacementReason},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
			tc.change(n)
			_, err := f.reconciler.Reconcile(f.Ctx, request(n.remediation))
			f.Expect(err).NotTo(HaveOccurred())
			f.ExpectCondition(n.remediation, infrav1.ReadyCondition, no, tc.reason)
			if f.Exists(n.owner) {
				f.Expect(n.owner.Status.Conditions).NotTo(ContainElement(HaveField("Type", clusterv1.MachineOwnerRemediatedCondition)))
			}
			if f.Exists(n.host) {
				f.Expect(n.host.Spec.Reboot).To(BeNil())
			}
		})
	}
}

// anotherKind sets an infrastructure reference of another provider.
func (n *node) anotherKind() {
	controllertest.Change(n.f.Fixture, n.owner, func(o *clusterv1.Machine) { o.Spec.InfrastructureRef.Kind = "OtherMachine" })
}

func TestPaused(t *testing.T) {
	f := newFixture(t)
	n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	n.reconcile()
	f.ExpectCondition(n.remediation, clusterv1.PausedCondition, yes, clusterv1.PausedReason)
	f.Expect(n.host.Spec.Reboot).To(BeNil())
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	n.expect(infrav1.RecoveringReason, recovery)
	f.ExpectCondition(n.remediation, clusterv1.PausedCondition, no, clusterv1.NotPausedReason)
	f.Delete(f.cluster)
	n.reconcile()
	f.ExpectCondition(n.remediation, clusterv1.PausedCondition, yes, clusterv1.PausedReason)
}

func TestWatchFilter(t *testing.T) {
	f := newFixture(t)
	f.reconciler.WatchFilter = "another"
	n := f.node("n").unhealthy(infrav1.ElementalRemediationSpec{})
	n.reconcile()
	f.Expect(n.remediation.Status.Conditions).To(BeEmpty())
}
