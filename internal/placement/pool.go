package placement

import (
	"maps"
	"sync"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// Pool keeps the hosts that may be had, so that one that suits is found without a
// look at all others. It is as new as the last host that it was told of: who takes
// a host from it looks at the host again. Several goroutines may use it.
type Pool struct {
	mu sync.RWMutex
	// hosts are those that nobody has claimed and that are available. They are
	// others' and not changed.
	hosts map[hostKey]*infrav1.ElementalHost
	// names has their names by namespace and by each of their labels.
	names map[shelf]*Order
}

type hostKey struct{ namespace, name string }

// shelf is a namespace, or what has a label in it.
type shelf struct{ namespace, label, value string }

// NewPool returns an empty Pool.
func NewPool() *Pool {
	return &Pool{hosts: map[hostKey]*infrav1.ElementalHost{}, names: map[shelf]*Order{}}
}

// Set tells of a host's state. The host must not be changed afterwards.
func (p *Pool) Set(host *infrav1.ElementalHost) {
	offered := host.Spec.Claim == nil && hoststatus.Available(host).IsTrue()
	key := keyOf(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.hosts[key]
	switch {
	case !offered:
		p.drop(key)
	case before != nil && maps.Equal(before.Labels, host.Labels):
		p.hosts[key] = host
	default:
		p.drop(key)
		p.hosts[key] = host
		for _, s := range shelves(host) {
			if p.names[s] == nil {
				p.names[s] = &Order{}
			}
			p.names[s].Add(host.Name)
		}
	}
}

// Remove tells that a host is not to be had any more.
func (p *Pool) Remove(namespace, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(hostKey{namespace, name})
}

func (p *Pool) drop(key hostKey) {
	host := p.hosts[key]
	if host == nil {
		return
	}
	delete(p.hosts, key)
	for _, s := range shelves(host) {
		p.names[s].Remove(host.Name)
		if p.names[s].Len() == 0 {
			delete(p.names, s)
		}
	}
}

func shelves(host *infrav1.ElementalHost) []shelf {
	out := make([]shelf, 0, len(host.Labels)+1)
	out = append(out, shelf{namespace: host.Namespace})
	for label, value := range host.Labels {
		out = append(out, shelf{host.Namespace, label, value})
	}
	return out
}

// Pick offers hosts of the namespace that the request matches to take, in the
// order of Request.Pick, until it takes one, which is returned; nil if it takes
// none. take must not call the Pool. Reservations are not looked at.
func (p *Pool) Pick(namespace string, request Request, take func(*infrav1.ElementalHost) bool) *infrav1.ElementalHost {
	if request.Selector.Err() != nil {
		return nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	try := func(name string) *infrav1.ElementalHost {
		host := p.hosts[hostKey{namespace, name}]
		if host == nil {
			return nil
		}
		if _, ok := request.Matches(host); !ok || !take(host) {
			return nil
		}
		return host
	}
	if request.HostName != "" {
		return try(request.HostName)
	}
	for name := range p.fewest(namespace, request).All() {
		if host := try(name); host != nil {
			return host
		}
	}
	return nil
}

// fewest returns the smallest set of names that the hosts that the request matches
// are among.
func (p *Pool) fewest(namespace string, request Request) *Order {
	fewest := p.names[shelf{namespace: namespace}]
	consider := func(label, value string) {
		if names := p.names[shelf{namespace, label, value}]; names.Len() < fewest.Len() {
			fewest = names
		}
	}
	for label, value := range request.Selector.Required() {
		consider(label, value)
	}
	if request.FailureDomain != "" {
		consider(request.FailureDomainLabel, request.FailureDomain)
	}
	return fewest
}
