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
	// ends are the nominations in the order in which they end, also of those that
	// were dropped.
	ends []nomination
}

type nomination struct {
	host client.ObjectKey
	end  time.Time
}

// pick chooses among the hosts that are not nominated and nominates the choice.
func (n *nominations) pick(now time.Time, request placement.Request, hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expire(now)
	free := make([]*infrav1.ElementalHost, 0, len(hosts))
	for _, host := range hosts {
		if _, nominated := n.until[client.ObjectKeyFromObject(host)]; !nominated {
			free = append(free, host)
		}
	}
	host := request.Pick(free)
	if host != nil {
		n.add(now, client.ObjectKeyFromObject(host))
	}
	return host
}

// take nominates a host; false if it is nominated already.
func (n *nominations) take(now time.Time, host client.ObjectKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expire(now)
	if _, nominated := n.until[host]; nominated {
		return false
	}
	n.add(now, host)
	return true
}

func (n *nominations) add(now time.Time, host client.ObjectKey) {
	if n.until == nil {
		n.until = map[client.ObjectKey]time.Time{}
	}
	end := now.Add(nominationTTL)
	n.until[host] = end
	n.ends = append(n.ends, nomination{host, end})
}

func (n *nominations) expire(now time.Time) {
	i := 0
	for ; i < len(n.ends) && !now.Before(n.ends[i].end); i++ {
		// It may have been dropped, and made anew.
		if host := n.ends[i].host; n.until[host].Equal(n.ends[i].end) {
			delete(n.until, host)
		}
	}
	n.ends = n.ends[i:]
}

func (n *nominations) drop(key client.ObjectKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.until, key)
}
