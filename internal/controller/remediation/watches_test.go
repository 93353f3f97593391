package remediation_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/remediation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// woken returns the names of the remediations that a change of a host wakes.
func (f *fixture) woken(before, after *infrav1.ElementalHost) []string {
	f.T.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	remediation.HostHandler(f.reconciler).Update(f.Ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	names := []string{}
	for q.Len() > 0 {
		r, _ := q.Get()
		names = append(names, r.Name)
		q.Done(r)
	}
	return names
}

func TestHostsWakeRemediations(t *testing.T) {
	f := newFixture(t)
	a := f.node("a").unhealthy(infrav1.ElementalRemediationSpec{})
	f.node("b").unhealthy(infrav1.ElementalRemediationSpec{})
	healthy := f.node("healthy")
	for name, tc := range map[string]struct {
		of     *node
		change func(*infrav1.ElementalHost)
		want   []string
	}{
		"progress":                   {a, func(h *infrav1.ElementalHost) { h.Status.Addresses = nil }, []string{"a"}},
		"progress of a healthy host": {healthy, func(h *infrav1.ElementalHost) { h.Status.Addresses = nil }, []string{}},
		"a witness disconnects": {healthy, func(h *infrav1.ElementalHost) {
			h.Status.Connection.State = infrav1.ConnectionDisconnected
		}, []string{"a", "b"}},
		"another host of the domain is fenced": {healthy, func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "gone"} }, []string{"a", "b"}},
		"another machine claims the host":      {a, func(h *infrav1.ElementalHost) { h.Spec.Claim.MachineName = "b" }, []string{"a", "b"}},
		"a host is released":                   {healthy, func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, []string{"a", "b"}},
		"a resync":                             {a, nil, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fixture{Fixture: f.Fixture, reconciler: f.reconciler}
			f.WithT, f.T = NewWithT(t), t
			after := tc.of.host.DeepCopy()
			if tc.change != nil {
				after.ResourceVersion += "1"
				tc.change(after)
			}
			f.Expect(f.woken(tc.of.host, after)).To(ConsistOf(tc.want))
		})
	}
}

// TestManager tests the watches with a real manager: a health check creates a remediation,
// the host reboots, and the health check deletes the remediation.
func TestManager(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(env.Config, env.ManagerOptions())
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(index.Register(ctx, mgr.GetFieldIndexer())).To(Succeed())
	f.reconciler.Client = mgr.GetClient()
	f.Expect(f.reconciler.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 2})).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		f.Expect(<-ended).To(Succeed())
	}()
	reason := func(n *node) func(Gomega) string {
		return func(g Gomega) string {
			g.Expect(f.Admin.Get(ctx, request(n.remediation).NamespacedName, n.remediation)).To(Succeed())
			for _, c := range n.remediation.Status.Conditions {
				if c.Type == infrav1.ReadyCondition {
					return c.Reason
				}
			}
			return ""
		}
	}
	const soon = time.Minute

	witness, n := f.node("witness"), f.node("n")
	witness.disconnect()
	n.disconnect()
	n.unhealthy(infrav1.ElementalRemediationSpec{})
	f.Eventually(reason(n)).WithTimeout(soon).Should(Equal(infrav1.SiteDarkReason))
	witness.connect()
	f.Eventually(reason(n)).WithTimeout(soon).Should(Equal(infrav1.DisconnectedReason), "woken by the return of another host")
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	f.Eventually(func(g Gomega) {
		reason(n)(g)
		g.Expect(n.remediation.Status.Conditions).To(ContainElement(HaveField("Reason", clusterv1.PausedReason)))
	}).WithTimeout(soon).Should(Succeed(), "woken by the Cluster")
	controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	n.connect()
	f.Eventually(reason(n)).WithTimeout(soon).Should(Equal(infrav1.RecoveringReason), "woken by its host")
	n.health(yes)
	f.Eventually(reason(n)).WithTimeout(soon).Should(Equal(infrav1.RemediatedReason), "woken by the Machine")
}
