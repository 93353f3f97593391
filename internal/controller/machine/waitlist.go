package machine

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// waitlist contains the machines that wait for a host, in the order in which they get
// one: control planes first, because the rest of a cluster depends on them, then the
// oldest. A machine that was woken for a host is passed over as long as a claim may
// take. The zero value is ready to use, by several goroutines.
type waitlist struct {
	mu       sync.Mutex
	machines map[client.ObjectKey]*waiter
	// queues are the sort keys of the machines that were not woken recently, by
	// namespace.
	queues map[string]*placement.SortedSet
	// bySortKey are the same machines by their sort keys.
	bySortKey map[string]*waiter
	// wakeups are in the order in which they expire.
	wakeups []*wakeup
	// byHost is the last wake-up for each host.
	byHost map[client.ObjectKey]*wakeup
}

// waiter is a machine that waits for a host.
type waiter struct {
	key     client.ObjectKey
	sortKey string
	// controlPlane: the machine belongs to a control plane.
	controlPlane bool
	// constraints is the constraintsKey of the machine.
	constraints string
	// wakeup is nil if the machine was not woken recently.
	wakeup *wakeup
}

// wakeup records for which host a machine was woken.
type wakeup struct {
	machine *waiter
	host    client.ObjectKey
	expires time.Time
}

// sortKeyOf returns the key that orders the machines of a namespace.
func sortKeyOf(m *infrav1.ElementalMachine) string {
	return fmt.Sprintf("%d %020d %s/%s", workerRank(m), m.CreationTimestamp.Unix(), m.Namespace, m.Name)
}

// constraintsKey returns a string that is equal for equal constraints.
func constraintsKey(s *scope, constraints placement.Constraints) string {
	parts := []any{constraints.HostName, s.machine.Spec.HostSelector, constraints.OSImage, constraints.FailureDomain, constraints.FailureDomainLabel, constraints.ReservedFor, constraints.Preflight, constraints.Adoption}
	if constraints.Feasible != nil {
		parts = append(parts, s.infraCluster.EndpointType(), s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP, s.infraCluster.Spec.ControlPlaneEndpoint.Host)
	}
	// Encoding plain structs can't fail.
	raw, _ := json.Marshal(parts)
	return string(raw)
}

// add adds the machine, or updates its constraints.
func (w *waitlist) add(m *infrav1.ElementalMachine, constraints string) {
	key := client.ObjectKeyFromObject(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	if found := w.machines[key]; found != nil {
		found.constraints = constraints
		return
	}
	if w.machines == nil {
		w.machines, w.queues = map[client.ObjectKey]*waiter{}, map[string]*placement.SortedSet{}
		w.bySortKey, w.byHost = map[string]*waiter{}, map[client.ObjectKey]*wakeup{}
	}
	added := &waiter{key: key, sortKey: sortKeyOf(m), controlPlane: workerRank(m) == 0, constraints: constraints}
	w.machines[key] = added
	w.enqueue(added)
}

// enqueue makes the machine eligible to be woken. The caller holds the lock.
func (w *waitlist) enqueue(m *waiter) {
	if w.queues[m.key.Namespace] == nil {
		w.queues[m.key.Namespace] = &placement.SortedSet{}
	}
	w.queues[m.key.Namespace].Add(m.sortKey)
	w.bySortKey[m.sortKey] = m
}

func (w *waitlist) dequeue(m *waiter) {
	w.queues[m.key.Namespace].Remove(m.sortKey)
	delete(w.bySortKey, m.sortKey)
}

// remove removes the machine.
func (w *waitlist) remove(key client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[key]
	if m == nil {
		return
	}
	delete(w.machines, key)
	w.dequeue(m)
	if m.wakeup != nil && w.byHost[m.wakeup.host] == m.wakeup {
		delete(w.byHost, m.wakeup.host)
	}
	m.wakeup = nil
}

// wake returns the machine to wake for the host: the first one that matches and was
// not woken recently for another host. If all were, it returns one of those again, as
// a superfluous wake-up does no harm. matches must not call the waitlist.
func (w *waitlist) wake(now time.Time, host client.ObjectKey, matches func(*waiter) bool) (client.ObjectKey, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	if last := w.byHost[host]; last != nil && matches(last.machine) {
		return last.machine.key, true
	}
	for sortKey := range w.queues[host.Namespace].All() {
		m := w.bySortKey[sortKey]
		if !matches(m) {
			continue
		}
		m.wakeup = &wakeup{machine: m, host: host, expires: now.Add(placement.NominationTTL)}
		w.wakeups, w.byHost[host] = append(w.wakeups, m.wakeup), m.wakeup
		w.dequeue(m)
		return m.key, true
	}
	for _, other := range w.wakeups {
		if other.machine.wakeup == other && other.machine.key.Namespace == host.Namespace && matches(other.machine) {
			return other.machine.key, true
		}
	}
	return client.ObjectKey{}, false
}

// expire returns machines to their queues whose wake-up has expired.
func (w *waitlist) expire(now time.Time) {
	i := 0
	for ; i < len(w.wakeups) && !now.Before(w.wakeups[i].expires); i++ {
		expired := w.wakeups[i]
		if w.byHost[expired.host] == expired {
			delete(w.byHost, expired.host)
		}
		if expired.machine.wakeup == expired {
			expired.machine.wakeup = nil
			w.enqueue(expired.machine)
		}
	}
	w.wakeups = w.wakeups[i:]
}
