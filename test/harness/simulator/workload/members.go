package workload

import (
	"net/netip"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/objects"
)

// members has the etcd members of a cluster by node. Request handlers and store callbacks use it, so it has a lock of its
// own and calls no other code while it holds the lock.
type members struct {
	mu sync.RWMutex
	of map[string]member
}

// member is an etcd member and the API server that depends on it.
type member struct {
	api, etcd netip.AddrPort
	// forwarded is where the port of the API server's Pod is forwarded to.
	forwarded netip.AddrPort
	// up means that it runs and that the others reach it.
	up bool
}

func (m *members) add(node string, one member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]member{}
	}
	m.of[node] = one
}

// set does nothing for a member that was removed.
func (m *members) set(node string, up bool, forwarded netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one, ok := m.of[node]; ok {
		one.up, one.forwarded = up, forwarded
		m.of[node] = one
	}
}

func (m *members) remove(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, node)
}

// isUp reports whether a node has a running member.
func (m *members) isUp(node string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.of[node].up
}

// quorum reports whether a majority runs, which etcd requires.
func (m *members) quorum() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.majority()
}

func (m *members) majority() bool {
	running := 0
	for _, one := range m.of {
		if one.up {
			running++
		}
	}
	return 2*running > len(m.of)
}

// work reports whether the API server and the etcd member at an address work. They don't on a disconnected host.
func (m *members) work(address netip.Addr) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, one := range m.of {
		if one.api.Addr() == address {
			return one.up && m.majority()
		}
	}
	return false
}

// target returns the address of a static Pod's port.
func (m *members) target(pod string) (netip.AddrPort, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for node, one := range m.of {
		switch pod {
		case objects.PodName(objects.Etcd, node):
			return one.etcd, true
		case objects.PodName(objects.APIServer, node):
			return one.forwarded, true
		}
	}
	return netip.AddrPort{}, false
}
