package machine

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// nominationTTL is longer than a claim and the cache's lag behind it take.
const nominationTTL = 10 * time.Second

// nominations keeps the workers of one manager from choosing the same host at
// the same time. It spares conflicts and is no protection: claims are made safe
// by resourceVersions alone. The zero value is ready to use.
type nominations struct {
	mu    sync.Mutex
	until map[client.ObjectKey]time.Time
}

// pick chooses among the hosts that are not nominated and nominates the choice.
func (n *nominations) pick(now time.Time, request placement.Request, hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, until := range n.until {
		if !now.Before(until) {
			delete(n.until, key)
		}
	}
	free := make([]*infrav1.ElementalHost, 0, len(hosts))
	for _, host := range hosts {
		if _, nominated := n.until[client.ObjectKeyFromObject(host)]; !nominated {
			free = append(free, host)
		}
	}
	host := request.Pick(free)
	if host == nil {
		return nil
	}
	if n.until == nil {
		n.until = map[client.ObjectKey]time.Time{}
	}
	n.until[client.ObjectKeyFromObject(host)] = now.Add(nominationTTL)
	return host
}

func (n *nominations) drop(key client.ObjectKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.until, key)
}

// wakings remembers for a short time which machine was woken for which host.
// The zero value is ready to use.
type wakings struct {
	mu   sync.Mutex
	last map[client.ObjectKey]waking
}

type waking struct {
	host  string
	until time.Time
}

// add reports whether the machine was not just woken for another host.
func (w *wakings) add(now time.Time, machine client.ObjectKey, host string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, k := range w.last {
		if !now.Before(k.until) {
			delete(w.last, key)
		}
	}
	if k, ok := w.last[machine]; ok && k.host != host {
		return false
	}
	if w.last == nil {
		w.last = map[client.ObjectKey]waking{}
	}
	w.last[machine] = waking{host, now.Add(nominationTTL)}
	return true
}
