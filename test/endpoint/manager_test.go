package endpoint

import (
	"errors"
	"maps"
	"reflect"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// manager is a manager's process: its cache, its queue and its reconciler.
type manager struct {
	w *world
	// sees is the cache; a kind is not brought up to date before its time.
	sees    view
	stalled map[reflect.Type]time.Time

	client     *controllertest.Client
	reconciler *cluster.Reconciler
	// due is when each cluster is to be reconciled.
	due map[string]time.Time
}

// startManager starts a manager that remembers nothing.
func (w *world) startManager() *manager {
	w.T.Helper()
	live, err := client.NewWithWatch(env.Config, env.ClientOptions())
	w.Expect(err).NotTo(HaveOccurred())
	m := &manager{w: w, sees: view{}, stalled: map[reflect.Type]time.Time{}, due: map[string]time.Time{}}
	cached := w.times.through(live, func() view { return m.sees }, func(o client.Object) {
		w.learn(o)
		w.referee.saw(m, o)
	}, func() { w.stale = true })
	m.client = controllertest.Wrap(w.T, cached, index.Register)
	m.reconciler = &cluster.Reconciler{
		Client: m.client, APIReader: w.times.through(live, func() view { return nil }, func(client.Object) {}, func() {}),
		Recorder: w.Recorder, Clock: w.clock,
	}
	m.refresh()
	return m
}

// refresh brings the cache up to date where it is not stalled, and reports
// whether something changed.
func (m *manager) refresh() bool {
	changed := false
	for kind, is := range m.w.is {
		if m.w.clock.Now().Before(m.stalled[kind]) || (m.sees[kind] != nil && is.equal(m.sees[kind])) {
			continue
		}
		m.sees[kind] = maps.Clone(is)
		changed = true
	}
	return changed
}

// run reconciles what is due, as far as the cache is, and reports whether
// something was written.
func (m *manager) run() bool {
	m.w.T.Helper()
	now := m.w.clock.Now()
	changed := m.refresh()
	written := len(m.client.Writes())
	for _, infra := range all[*infrav1.ElementalCluster](m.sees) {
		at, waits := m.due[infra.Name]
		if !changed && (!waits || at.After(now)) {
			continue
		}
		m.reconcile(infra)
	}
	return len(m.client.Writes()) != written
}

// reconcile reconciles one cluster. A manager whose write fails crashes there;
// another starts in its place.
func (m *manager) reconcile(infra *infrav1.ElementalCluster) {
	m.w.T.Helper()
	delete(m.due, infra.Name)
	result, err := m.reconciler.Reconcile(m.w.ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(infra)})
	for _, e := range m.w.Events() {
		m.w.note("event: %s", e)
	}
	switch {
	case err == nil && result.RequeueAfter > 0:
		m.due[infra.Name] = m.w.clock.Now().Add(result.RequeueAfter)
	case err == nil:
	case errors.Is(err, controllertest.ErrInjected):
		m.w.note("the manager crashed: %v", m.client.Writes())
		if m.w.manager == m {
			m.w.manager = m.w.startManager()
		}
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		m.due[infra.Name] = m.w.clock.Now()
	default:
		m.w.T.Errorf("reconciling %s: %v", infra.Name, err)
	}
}

// late reconciles everything once more by what the cache had, as a manager does
// that was deposed and has not noticed.
func (m *manager) late() {
	m.w.T.Helper()
	for _, infra := range all[*infrav1.ElementalCluster](m.sees) {
		m.reconcile(infra)
	}
}
