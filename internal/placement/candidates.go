package placement

import (
	"maps"
	"sync"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

// Candidates indexes the free, available hosts by namespace and label, so that a
// machine finds a host without listing all of them. It is filled by watch events
// and may be older than the cache: read a host again before claiming it. Several
// goroutines may use it.
type Candidates struct {
	mu sync.RWMutex
	// hosts belong to the cache and must not be changed.
	hosts map[hostKey]*infrav1.ElementalHost
	// names are the hosts' names by namespace and by label.
	names map[labelKey]*SortedSet
}

type hostKey struct{ namespace, name string }

// labelKey is a label with its value in a namespace. A blank label stands for all
// hosts of the namespace.
type labelKey struct{ namespace, label, value string }

// NewCandidates returns an empty index.
func NewCandidates() *Candidates {
	return &Candidates{hosts: map[hostKey]*infrav1.ElementalHost{}, names: map[labelKey]*SortedSet{}}
}

// Update adds the host if it is free and available, and removes it otherwise. The
// caller must not change the host afterwards.
func (c *Candidates) Update(host *infrav1.ElementalHost) {
	free := host.Spec.Claim == nil && hoststatus.Available(host).IsTrue()
	key := keyOf(host)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.hosts[key]
	switch {
	case !free:
		c.remove(key)
	case before != nil && maps.Equal(before.Labels, host.Labels):
		c.hosts[key] = host
	default:
		c.remove(key)
		c.hosts[key] = host
		for _, label := range labelKeys(host) {
			if c.names[label] == nil {
				c.names[label] = &SortedSet{}
			}
			c.names[label].Add(host.Name)
		}
	}
}

// Remove removes a host.
func (c *Candidates) Remove(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(hostKey{namespace, name})
}

func (c *Candidates) remove(key hostKey) {
	host := c.hosts[key]
	if host == nil {
		return
	}
	delete(c.hosts, key)
	for _, label := range labelKeys(host) {
		c.names[label].Remove(host.Name)
		if c.names[label].Len() == 0 {
			delete(c.names, label)
		}
	}
}

func labelKeys(host *infrav1.ElementalHost) []labelKey {
	out := make([]labelKey, 0, len(host.Labels)+1)
	out = append(out, labelKey{namespace: host.Namespace})
	for label, value := range host.Labels {
		out = append(out, labelKey{host.Namespace, label, value})
	}
	return out
}

// Pick returns the first host of the namespace, by name, that meets the
// constraints and that accept returns true for; nil if no host does. accept must
// not call Candidates. Reserved hosts are not considered.
func (c *Candidates) Pick(namespace string, constraints Constraints, accept func(*infrav1.ElementalHost) bool) *infrav1.ElementalHost {
	if constraints.Selector.Err() != nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	try := func(name string) *infrav1.ElementalHost {
		host := c.hosts[hostKey{namespace, name}]
		if host == nil {
			return nil
		}
		if _, ok := constraints.Matches(host); !ok || !accept(host) {
			return nil
		}
		return host
	}
	if constraints.HostName != "" {
		return try(constraints.HostName)
	}
	for name := range c.smallestSet(namespace, constraints).All() {
		if host := try(name); host != nil {
			return host
		}
	}
	return nil
}

// smallestSet returns the smallest indexed set that contains all hosts that meet
// the constraints.
func (c *Candidates) smallestSet(namespace string, constraints Constraints) *SortedSet {
	smallest := c.names[labelKey{namespace: namespace}]
	consider := func(label, value string) {
		if names := c.names[labelKey{namespace, label, value}]; names.Len() < smallest.Len() {
			smallest = names
		}
	}
	for label, value := range constraints.Selector.Required() {
		consider(label, value)
	}
	if constraints.FailureDomain != "" {
		consider(constraints.FailureDomainLabel, constraints.FailureDomain)
	}
	return smallest
}
