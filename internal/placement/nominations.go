package placement

import (
	"sync"
	"time"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// NominationTTL is longer than a claim and the cache's lag behind it take.
const NominationTTL = 10 * time.Second

// Nominations prevent the workers of one manager from choosing the same host at
// the same time, for a machine or for an endpoint. They save conflicts and are no
// protection: only the resourceVersion makes a claim safe. The zero value is ready
// to use, by several goroutines; nil nominates nothing.
type Nominations struct {
	mu     sync.Mutex
	byHost map[hostKey]nomination
	// expiring are the nominations in the order in which they expire, including
	// those that were removed.
	expiring []nomination
}

type nomination struct {
	host    hostKey
	expires time.Time
	// reservedFor is the cluster that is about to reserve the host; blank if a
	// machine is about to claim it.
	reservedFor string
}

// Pick picks a host that is not nominated and nominates it for a machine. It
// returns nil if no host is available, or all available ones are nominated.
func (n *Nominations) Pick(now time.Time, constraints Constraints, hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	return n.pick(now, constraints, hosts, "")
}

// PickForEndpoint is Pick for the endpoint of the cluster constraints.ReservedFor.
// The cluster and its control-plane machines may still pick the host.
func (n *Nominations) PickForEndpoint(now time.Time, constraints Constraints, hosts []*infrav1.ElementalHost) *infrav1.ElementalHost {
	return n.pick(now, constraints, hosts, constraints.ReservedFor)
}

func (n *Nominations) pick(now time.Time, constraints Constraints, hosts []*infrav1.ElementalHost, reservedFor string) *infrav1.ElementalHost {
	if n == nil {
		return constraints.Pick(hosts)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expire(now)
	free := make([]*infrav1.ElementalHost, 0, len(hosts))
	for _, host := range hosts {
		is, nominated := n.byHost[keyOf(host)]
		if !nominated || is.reservedFor != "" && is.reservedFor == constraints.ReservedFor {
			free = append(free, host)
		}
	}
	host := constraints.Pick(free)
	if host != nil {
		n.add(nomination{keyOf(host), now.Add(NominationTTL), reservedFor})
	}
	return host
}

// Nominate nominates a host for a machine. It reports false if the host is
// nominated already.
func (n *Nominations) Nominate(now time.Time, host *infrav1.ElementalHost) bool {
	if n == nil {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expire(now)
	if _, nominated := n.byHost[keyOf(host)]; nominated {
		return false
	}
	n.add(nomination{host: keyOf(host), expires: now.Add(NominationTTL)})
	return true
}

// Remove removes the host's nomination.
func (n *Nominations) Remove(host *infrav1.ElementalHost) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byHost, keyOf(host))
}

func (n *Nominations) add(is nomination) {
	if n.byHost == nil {
		n.byHost = map[hostKey]nomination{}
	}
	n.byHost[is.host] = is
	n.expiring = append(n.expiring, is)
}

func (n *Nominations) expire(now time.Time) {
	i := 0
	for ; i < len(n.expiring) && !now.Before(n.expiring[i].expires); i++ {
		// The host may have been nominated again in the meantime.
		if host := n.expiring[i].host; n.byHost[host].expires.Equal(n.expiring[i].expires) {
			delete(n.byHost, host)
		}
	}
	n.expiring = n.expiring[i:]
}

func keyOf(host *infrav1.ElementalHost) hostKey { return hostKey{host.Namespace, host.Name} }
