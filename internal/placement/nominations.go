package placement

import (
	"sync"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// NominationTTL is longer than a claim and the cache's lag behind it take.
const NominationTTL = 10 * time.Second

// Nominations keep the workers of one manager from choosing the same host at the
// same time, for machines and for endpoints. They spare conflicts and are no
// protection: claims are made safe by resourceVersions alone. The zero value is
// ready to use, by several goroutines; nil nominates nothing.
type Nominations struct {
	mu sync.Mutex
	of map[hostKey]nomination
	// ends are the nominations in the order in which they end, also of those that
	// were dropped.
	ends []nomination
}

type nomination struct {
	host hostKey
	end  time.Time
	// reservedFor is the cluster that is about to reserve the host; blank where a
	// machine is about to claim it.
	reservedFor string
}

// Pick chooses among the hosts that are not nominated and nominates the choice, to
// be claimed by a machine. nil: none suits, or those that do are nominated.
func (n *Nominations) Pick(now time.Time, request Request, hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	return n.pick(now, request, hosts, "")
}

// PickReserved is Pick for the endpoint of the cluster that is request.ReservedFor.
// To the cluster and its control-plane machines the host counts as free.
func (n *Nominations) PickReserved(now time.Time, request Request, hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	return n.pick(now, request, hosts, request.ReservedFor)
}

func (n *Nominations) pick(now time.Time, request Request, hosts []*infrav1.ElementalHost, reserve string) *infrav1.ElementalHost {
	if n == nil {
		return request.Pick(hosts)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expire(now)
	free := make([]*infrav1.ElementalHost, 0, len(hosts))
	for _, host := range hosts {
		is, nominated := n.of[keyOf(host)]
		if !nominated || is.reservedFor != "" && is.reservedFor == request.ReservedFor {
			free = append(free, host)
		}
	}
	host := request.Pick(free)
	if host != nil {
		n.add(nomination{keyOf(host), now.Add(NominationTTL), reserve})
	}
	return host
}

// Take nominates a host, to be claimed by a machine; false if it is nominated
// already.
func (n *Nominations) Take(now time.Time, host *infrav1.ElementalHost) bool {
	if n == nil {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expire(now)
	if _, nominated := n.of[keyOf(host)]; nominated {
		return false
	}
	n.add(nomination{host: keyOf(host), end: now.Add(NominationTTL)})
	return true
}

// Drop takes a nomination back.
func (n *Nominations) Drop(host *infrav1.ElementalHost) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, keyOf(host))
}

func (n *Nominations) add(is nomination) {
	if n.of == nil {
		n.of = map[hostKey]nomination{}
	}
	n.of[is.host] = is
	n.ends = append(n.ends, is)
}

func (n *Nominations) expire(now time.Time) {
	i := 0
	for ; i < len(n.ends) && !now.Before(n.ends[i].end); i++ {
		// It may have been dropped, and made anew.
		if host := n.ends[i].host; n.of[host].end.Equal(n.ends[i].end) {
			delete(n.of, host)
		}
	}
	n.ends = n.ends[i:]
}

func keyOf(host *infrav1.ElementalHost) hostKey { return hostKey{host.Namespace, host.Name} }
