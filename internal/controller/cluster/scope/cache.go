package scope

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Cache keeps a value for each cluster that the last listing of hosts yielded. Event
// handlers use it to drop changes of hosts that make no difference to a cluster
// (ADR 0035). Nothing is decided by it: a cluster without a value counts as affected.
//
// A reconcile deletes the value before it lists hosts, so that no event is dropped
// because of an outdated value. The zero value is ready to use, by several goroutines.
type Cache[T any] struct {
	mu     sync.Mutex
	values map[types.NamespacedName]T
}

// Set stores the value of a cluster.
func (c *Cache[T]) Set(cluster types.NamespacedName, value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[types.NamespacedName]T{}
	}
	c.values[cluster] = value
}

// Get returns the value of a cluster, and whether it is cached.
func (c *Cache[T]) Get(cluster types.NamespacedName) (value T, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, found = c.values[cluster]
	return value, found
}

// Delete removes the value of a cluster.
func (c *Cache[T]) Delete(cluster types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.values, cluster)
}
