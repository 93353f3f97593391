package template_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/template"
)

func TestStatus(t *testing.T) {
	type change = func(*infrav1.ElementalHost)
	big := &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "big"}}
	for name, tc := range map[string]struct {
		selector *infrav1.HostSelector
		hosts    [][]change
		want     string
	}{
		"no hosts":                             {nil, nil, "0 of 0 free, cpu 0, memory 0, /"},
		"the smallest amount of each resource": {nil, [][]change{{hardware(8, 16)}, {hardware(4, 64)}, {hardware(16, 32)}}, "3 of 3 free, cpu 4, memory 16Gi, linux/amd64"},
		"free hosts take precedence":           {nil, [][]change{{hardware(8, 16)}, {hardware(2, 4), used}}, "1 of 2 free, cpu 8, memory 16Gi, linux/amd64"},
		"no free host":                         {nil, [][]change{{hardware(8, 16), used}, {hardware(2, 4), used}}, "0 of 2 free, cpu 2, memory 4Gi, linux/amd64"},
		"by labels":                            {big, [][]change{{hardware(8, 16), labelled}, {hardware(2, 4)}}, "1 of 1 free, cpu 8, memory 16Gi, linux/amd64"},
		"by an expression":                     {&infrav1.HostSelector{Expression: "host.inventory.cpu.cores > 2"}, [][]change{{hardware(8, 16)}, {hardware(2, 4)}, {}}, "1 of 1 free, cpu 8, memory 16Gi, linux/amd64"},
		"some amounts unknown":                 {nil, [][]change{{hardware(8, 16)}, {}, {hardware(0, 0)}, {hardware(0, 8)}}, "4 of 4 free, cpu 8, memory 8Gi, linux/amd64"},
		"all amounts unknown":                  {nil, [][]change{{}}, "1 of 1 free, cpu 0, memory 0, linux/"},
		"architectures":                        {nil, [][]change{{hardware(8, 16)}, {hardware(8, 16), arm}}, "2 of 2 free, cpu 8, memory 16Gi, linux/"},
		"architectures in use":                 {nil, [][]change{{hardware(8, 16)}, {hardware(8, 16), arm, used}}, "1 of 2 free, cpu 8, memory 16Gi, linux/"},
		"not selectable":                       {&infrav1.HostSelector{Expression: "host.cores > 2"}, [][]change{{hardware(8, 16)}}, "0 of 0 free, cpu 0, memory 0, /"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for i, changes := range tc.hosts {
				f.Host(fmt.Sprintf("h%d", i), changes...)
			}
			o := f.template("t", tc.selector)
			f.Expect(summary(f.update(o))).To(Equal(tc.want))
			f.Expect(f.Client.Writes()).To(HaveLen(1))
			f.Client.Forget()
			f.update(o)
			f.Expect(f.Client.Writes()).To(BeEmpty(), "an unchanged template must not be written")
		})
	}
}

func TestStatusFollowsHosts(t *testing.T) {
	f := newFixture(t)
	o := f.template("t", nil)
	f.Expect(summary(f.update(o))).To(HavePrefix("0 of 0 free"))
	a := f.Host("a", hardware(8, 16))
	f.Expect(summary(f.update(o))).To(Equal("1 of 1 free, cpu 8, memory 16Gi, linux/amd64"))
	f.Host("b", hardware(4, 16), arm)
	f.Expect(summary(f.update(o))).To(Equal("2 of 2 free, cpu 4, memory 16Gi, linux/"))
	f.Delete(a)
	f.Expect(summary(f.update(o))).To(Equal("1 of 1 free, cpu 4, memory 16Gi, linux/arm64"))
	b := &infrav1.ElementalHost{ObjectMeta: f.Meta("b")}
	f.Delete(b)
	f.Expect(summary(f.update(o))).To(Equal("0 of 0 free, cpu 0, memory 0, /"))
	f.Expect(o.Status.Capacity).To(BeNil(), "without a free host there is no capacity")
}

// During a burst of enrolments the template is updated once immediately, and then once
// per interval.
func TestBurstOfEnrolments(t *testing.T) {
	f := newFixture(t)
	o := f.template("t", nil)
	f.Host("h", hardware(8, 16))
	f.Expect(f.reconcile(o)).To(BeZero())
	f.Expect(f.Client.Writes()).To(HaveLen(1), "the first update must be immediate")
	f.Clock.Step(time.Second)
	for i := range 20 {
		f.Host(fmt.Sprintf("h%d", i), hardware(8, 16))
		f.Expect(f.reconcile(o)).To(Equal(ctrl.Result{RequeueAfter: template.Interval - time.Second}))
	}
	f.Expect(f.Client.Writes()).To(HaveLen(1))
	f.Clock.Step(template.Interval - time.Second)
	f.Expect(f.reconcile(o)).To(BeZero())
	f.Expect(summary(o.Status)).To(HavePrefix("21 of 21 free"))
	f.Expect(f.Client.Writes()).To(HaveLen(2))

	f.Clock.SetTime(f.Clock.Now().Add(-time.Hour))
	f.Expect(f.reconcile(o)).To(BeZero(), "a clock that was set back must not delay updates")
}

// A failed write is retried without waiting, and deleted templates are removed from the
// limiter.
func TestFailureAndDeletion(t *testing.T) {
	f := newFixture(t)
	o := f.template("t", nil)
	f.Host("h", hardware(8, 16))
	f.Client.FailWrite(1, controllertest.BeforeWrite)
	_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	f.Expect(errors.Is(err, controllertest.ErrInjected)).To(BeTrue())
	f.Expect(f.reconcile(o)).To(BeZero())
	f.Expect(summary(o.Status)).To(HavePrefix("1 of 1 free"))
	f.Expect(template.LimiterLen(f.reconciler)).To(Equal(1))
	f.Delete(o)
	_, err = f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(template.LimiterLen(f.reconciler)).To(BeZero())
}

func TestNothingIsWrittenWhile(t *testing.T) {
	for name, prepare := range map[string]func(*fixture) *infrav1.ElementalMachineTemplate{
		"the Cluster is paused": func(f *fixture) *infrav1.ElementalMachineTemplate {
			c, _ := f.Cluster("c", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) { c.Spec.Paused = new(true) })
			return f.template("t", nil, ownedBy(c))
		},
		"the Cluster is missing": func(f *fixture) *infrav1.ElementalMachineTemplate {
			return f.template("t", nil, ownedBy(&clusterv1.Cluster{ObjectMeta: controllertest.FreeHost("", "c", f.Clock.Now()).ObjectMeta}), func(o *infrav1.ElementalMachineTemplate) {
				o.OwnerReferences[0].UID = "gone"
			})
		},
		"the template is paused": func(f *fixture) *infrav1.ElementalMachineTemplate {
			return f.template("t", nil, func(o *infrav1.ElementalMachineTemplate) {
				o.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			})
		},
		"the template is being deleted": func(f *fixture) *infrav1.ElementalMachineTemplate {
			o := f.template("t", nil, func(o *infrav1.ElementalMachineTemplate) { o.Finalizers = []string{"test/hold"} })
			f.Delete(o)
			return o
		},
		"another manager watches the template": func(f *fixture) *infrav1.ElementalMachineTemplate {
			f.reconciler.WatchFilter = "mine"
			return f.template("t", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Host("h", hardware(8, 16))
			o := prepare(f)
			f.reconcile(o)
			f.Expect(f.Client.Writes()).To(BeEmpty())
		})
	}
	t.Run("hosts of other managers are not counted", func(t *testing.T) {
		f := newFixture(t)
		f.reconciler.WatchFilter = "mine"
		mine := map[string]string{clusterv1.WatchLabel: "mine"}
		f.Host("other", hardware(1, 1))
		f.Host("own", hardware(8, 16), func(h *infrav1.ElementalHost) { h.Labels = mine })
		o := f.template("t", nil, func(o *infrav1.ElementalMachineTemplate) { o.Labels = mine })
		f.Expect(summary(f.update(o))).To(HavePrefix("1 of 1 free, cpu 8"))
	})
}

// drain returns the names of the queued templates.
func drain(wake func(workqueue.TypedRateLimitingInterface[ctrl.Request])) []string {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer q.ShutDown()
	wake(q)
	names := []string{}
	for q.Len() > 0 {
		r, _ := q.Get()
		names = append(names, r.Name)
		q.Done(r)
	}
	return names
}

func TestHostEventsWakeTemplates(t *testing.T) {
	f := newFixture(t)
	f.template("all", nil)
	f.template("big", &infrav1.HostSelector{MatchLabels: infrav1.Labels{"size": "big"}})
	f.template("strong", &infrav1.HostSelector{Expression: "host.inventory.cpu.cores >= 16"})
	base := controllertest.FreeHost(f.Namespace, "h", f.Clock.Now())
	base.ResourceVersion = "1"
	hardware(8, 16)(base)
	handler := template.HostHandler(f.reconciler)
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		want   []string
	}{
		"a report":          {func(h *infrav1.ElementalHost) { h.Status.Addresses = nil }, nil},
		"claimed":           {used, []string{"all"}},
		"disconnected":      {func(h *infrav1.ElementalHost) { h.Status.Connection.State = infrav1.ConnectionDisconnected }, []string{"all"}},
		"labelled":          {labelled, []string{"all", "big"}},
		"hardware changed":  {hardware(16, 16), []string{"all", "strong"}},
		"inventory unknown": {func(h *infrav1.ElementalHost) { h.Status.Inventory = nil }, []string{"all"}},
	} {
		after := base.DeepCopy()
		after.ResourceVersion = "2"
		tc.change(after)
		for _, e := range []event.UpdateEvent{{ObjectOld: base, ObjectNew: after}, {ObjectOld: after, ObjectNew: base}} {
			f.Expect(drain(func(q workqueue.TypedRateLimitingInterface[ctrl.Request]) { handler.Update(f.Ctx, e, q) })).
				To(ConsistOf(tc.want), name)
		}
	}
	f.Expect(drain(func(q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		handler.Create(f.Ctx, event.CreateEvent{Object: base}, q)
	})).To(ConsistOf("all"))
	f.Expect(drain(func(q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		handler.Delete(f.Ctx, event.DeleteEvent{Object: base}, q)
	})).To(ConsistOf("all"))
}

func TestClustersWakeTheirTemplates(t *testing.T) {
	f := newFixture(t)
	c, _ := f.Cluster("c")
	f.template("own", nil, ownedBy(c))
	f.template("free", nil)
	handler := template.ClusterHandler(f.reconciler)
	paused := c.DeepCopy()
	paused.Spec.Paused = new(true)
	update := func(before, after *clusterv1.Cluster) []string {
		return drain(func(q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			handler.Update(f.Ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
		})
	}
	f.Expect(update(paused, c)).To(ConsistOf("own"))
	f.Expect(update(c, paused)).To(BeEmpty())
	f.Expect(update(c, c)).To(BeEmpty())
	f.Expect(drain(func(q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		handler.Create(f.Ctx, event.CreateEvent{Object: c}, q)
	})).To(ConsistOf("own"))
}

// TestManager tests the watches with a real manager: the status follows hosts and the end
// of a pause.
func TestManager(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(env.Config, env.ManagerOptions())
	f.Expect(err).NotTo(HaveOccurred())
	f.reconciler.Client = mgr.GetClient()
	f.Expect(f.reconciler.SetupWithManager(ctx, mgr, controller.Options{})).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		f.Expect(<-ended).To(Succeed())
	}()
	const soon = time.Minute
	is := func(o *infrav1.ElementalMachineTemplate, want string) {
		t.Helper()
		f.Eventually(func() string {
			// A change within the interval is handled after the interval.
			f.Clock.Step(template.Interval)
			f.Refresh(o)
			return summary(o.Status)
		}).WithTimeout(soon).Should(Equal(want))
	}
	h1, h2 := f.Host("h1", hardware(8, 16)), f.Host("h2", hardware(4, 16))
	o := f.template("t", nil)
	is(o, "2 of 2 free, cpu 4, memory 16Gi, linux/amd64")
	controllertest.Change(f.Fixture, h2, used)
	is(o, "1 of 2 free, cpu 8, memory 16Gi, linux/amd64")

	c, _ := f.Cluster("c", func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) { c.Spec.Paused = new(true) })
	controllertest.Change(f.Fixture, o, ownedBy(c))
	controllertest.Change(f.Fixture, h1, used)
	controllertest.Change(f.Fixture, c, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	is(o, "0 of 2 free, cpu 4, memory 16Gi, linux/amd64")
}
