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

// waitlist has the machines that look for a host, in the order in which they are
// to get one: control planes first, because nothing else of a cluster gets on
// without them, then the oldest. A machine that was woken for a host is left out
// for as long as it may take to claim it. The zero value is ready to use.
type waitlist struct {
	mu       sync.Mutex
	machines map[client.ObjectKey]*waiter
	// next are the places of those that were not just woken, by namespace, and
	// byPlace whose places they are.
	next    map[string]*placement.Order
	byPlace map[string]*waiter
	// woken are those that were, in the order in which that ends.
	woken []*waking
	// byHost is for whom a host woke a machine.
	byHost map[client.ObjectKey]*waking
}

// waiter is a machine that looks for a host.
type waiter struct {
	key client.ObjectKey
	// place orders it among the others.
	place string
	// asks says what it asks for: those that ask for the same have the same.
	asks string
	// waking is for which host it was woken; nil if it was not just.
	waking *waking
}

// waking is that a machine was woken for a host.
type waking struct {
	machine *waiter
	host    client.ObjectKey
	until   time.Time
}

// placeOf orders a machine among those of its namespace.
func placeOf(m *infrav1.ElementalMachine) string {
	return fmt.Sprintf("%d %020d %s/%s", workerRank(m), m.CreationTimestamp.Unix(), m.Namespace, m.Name)
}

// asks tells requests apart, by what they are made from.
func asks(s *scope, request placement.Request) string {
	spec := []any{request.HostName, s.machine.Spec.HostSelector, request.FailureDomain, request.FailureDomainLabel, request.ReservedFor}
	if request.Able != nil {
		spec = append(spec, s.infraCluster.Spec.ControlPlaneEndpointPolicy.VIP, s.infraCluster.Spec.ControlPlaneEndpoint.Host)
	}
	// Encoding plain structs can't fail.
	raw, _ := json.Marshal(spec)
	return string(raw)
}

// add has the machine wait, if it does not yet.
func (w *waitlist) add(m *infrav1.ElementalMachine, asks string) {
	key := client.ObjectKeyFromObject(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	if is := w.machines[key]; is != nil {
		is.asks = asks
		return
	}
	if w.machines == nil {
		w.machines, w.next = map[client.ObjectKey]*waiter{}, map[string]*placement.Order{}
		w.byPlace, w.byHost = map[string]*waiter{}, map[client.ObjectKey]*waking{}
	}
	is := &waiter{key: key, place: placeOf(m), asks: asks}
	w.machines[key] = is
	w.queue(is)
}

// queue lets hosts find the machine. The caller holds the lock.
func (w *waitlist) queue(is *waiter) {
	if w.next[is.key.Namespace] == nil {
		w.next[is.key.Namespace] = &placement.Order{}
	}
	w.next[is.key.Namespace].Add(is.place)
	w.byPlace[is.place] = is
}

func (w *waitlist) unqueue(is *waiter) {
	w.next[is.key.Namespace].Remove(is.place)
	delete(w.byPlace, is.place)
}

// remove has the machine wait no more.
func (w *waitlist) remove(key client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	is := w.machines[key]
	if is == nil {
		return
	}
	delete(w.machines, key)
	w.unqueue(is)
	if is.waking != nil && w.byHost[is.waking.host] == is.waking {
		delete(w.byHost, is.waking.host)
	}
	is.waking = nil
}

// wake returns the first machine that suits the host, which was not just woken for
// another, or else one that was: better once too often. suits must not call the
// waitlist.
func (w *waitlist) wake(now time.Time, host client.ObjectKey, suits func(*waiter) bool) (client.ObjectKey, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	if again := w.byHost[host]; again != nil && suits(again.machine) {
		return again.machine.key, true
	}
	for place := range w.next[host.Namespace].All() {
		is := w.byPlace[place]
		if !suits(is) {
			continue
		}
		is.waking = &waking{machine: is, host: host, until: now.Add(placement.NominationTTL)}
		w.woken, w.byHost[host] = append(w.woken, is.waking), is.waking
		w.unqueue(is)
		return is.key, true
	}
	for _, k := range w.woken {
		if k.machine.waking == k && k.machine.key.Namespace == host.Namespace && suits(k.machine) {
			return k.machine.key, true
		}
	}
	return client.ObjectKey{}, false
}

// expire gives those who were woken long enough ago their place back.
func (w *waitlist) expire(now time.Time) {
	i := 0
	for ; i < len(w.woken) && !now.Before(w.woken[i].until); i++ {
		k := w.woken[i]
		if w.byHost[k.host] == k {
			delete(w.byHost, k.host)
		}
		if k.machine.waking == k {
			k.machine.waking = nil
			w.queue(k.machine)
		}
	}
	w.woken = w.woken[i:]
}
