package endpoint

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/machine"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// manager is the process of a manager: cache, queue and reconciler.
type manager struct {
	sim *simulation
	// cache is the manager's cache. A kind in stalled is not updated before its time.
	cache   objectCache
	stalled map[reflect.Type]time.Time

	client     *controllertest.Client
	contacts   *contacts
	reconciler *cluster.Reconciler
	machines   *machine.Reconciler
	// due has the time of the next reconciliation of each cluster, and machinesDue that of
	// each ElementalMachine.
	due, machinesDue map[string]time.Time
	// started: the manager has reconciled everything once.
	started bool
}

// startManager starts a manager with empty memory.
func (s *simulation) startManager() *manager {
	s.T.Helper()
	m := &manager{
		sim: s, cache: objectCache{}, stalled: map[reflect.Type]time.Time{}, contacts: s.newContacts(),
		due: map[string]time.Time{}, machinesDue: map[string]time.Time{},
	}
	cached := s.times.through(s.server, func() objectCache { return m.cache }, func(o client.Object) {
		s.learn(o)
		s.checker.checkWrite(m, o)
	}, func() { s.stale = true })
	m.client = controllertest.Wrap(s.T, cached, index.Register)
	apiReader := s.times.through(s.server, func() objectCache { return nil }, func(client.Object) {}, func() {})
	m.reconciler = &cluster.Reconciler{Client: m.client, APIReader: apiReader, Recorder: s.Recorder, Clock: s.clock, Contacts: m.contacts}
	m.machines = &machine.Reconciler{Client: m.client, APIReader: apiReader, Recorder: s.Recorder, Clock: s.clock}
	m.refresh()
	return m
}

// refresh updates the kinds of the cache that are not stalled, and reports whether
// something changed.
func (m *manager) refresh() bool {
	changed := false
	for kind, is := range m.sim.state {
		if m.sim.clock.Now().Before(m.stalled[kind]) || (m.cache[kind] != nil && is.equal(m.cache[kind])) {
			continue
		}
		m.cache[kind] = maps.Clone(is)
		changed = true
	}
	return changed
}

// run reconciles the clusters and machines that are due, with the objects in the cache,
// and reports whether it wrote anything.
func (m *manager) run() bool {
	m.sim.T.Helper()
	now := m.sim.clock.Now()
	changed := m.refresh() || !m.started
	m.started = true
	written := len(m.client.Writes())
	for _, infra := range all[*infrav1.ElementalCluster](m.cache) {
		at, waits := m.due[infra.Name]
		if !changed && (!waits || at.After(now)) {
			continue
		}
		m.reconcile(infra)
	}
	for _, em := range all[*infrav1.ElementalMachine](m.cache) {
		at, waits := m.machinesDue[em.Name]
		if !changed && (!waits || at.After(now)) {
			continue
		}
		m.finish(em.Name, m.machinesDue, func(request ctrl.Request) (ctrl.Result, error) { return m.machines.Reconcile(m.sim.ctx, request) })
	}
	return len(m.client.Writes()) != written
}

// reconcile reconciles one cluster.
func (m *manager) reconcile(infra *infrav1.ElementalCluster) {
	m.sim.T.Helper()
	m.finish(infra.Name, m.due, func(request ctrl.Request) (ctrl.Result, error) { return m.reconciler.Reconcile(m.sim.ctx, request) })
}

// finish reconciles one object and records in due when it is to be reconciled again. A
// manager whose write fails crashes there; another starts in its place.
func (m *manager) finish(name string, due map[string]time.Time, reconcile func(ctrl.Request) (ctrl.Result, error)) {
	m.sim.T.Helper()
	delete(due, name)
	result, err := reconcile(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: m.sim.Namespace, Name: name}})
	for _, e := range m.sim.Events() {
		m.sim.record("event: %s", e)
		if strings.Contains(e, infrav1.MachineReplacedReason) {
			m.sim.replaced++
		}
	}
	switch {
	case err == nil && result.RequeueAfter > 0:
		due[name] = m.sim.clock.Now().Add(result.RequeueAfter)
	case err == nil:
	case errors.Is(err, controllertest.ErrInjected):
		m.sim.record("the manager crashed: %v", m.client.Writes())
		if m.sim.manager == m {
			m.sim.manager = m.sim.startManager()
		}
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		due[name] = m.sim.clock.Now()
	default:
		m.sim.T.Errorf("reconciling %s: %v", name, err)
	}
}

// reconcileStale reconciles everything once more with the stale cache, as a manager
// does that has lost its lease and has not noticed yet.
func (m *manager) reconcileStale() {
	m.sim.T.Helper()
	for _, infra := range all[*infrav1.ElementalCluster](m.cache) {
		m.reconcile(infra)
	}
}
