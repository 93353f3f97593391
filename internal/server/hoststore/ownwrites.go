package hoststore

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// ownWrites holds hosts that were written by this process and that the cache may not
// have received yet. It has the cache's indexes, because there are hundreds of them
// while ten thousand hosts enrol, and each HTTP request looks one up.
type ownWrites struct {
	indexes map[string]client.IndexerFunc

	mu    sync.Mutex
	hosts map[types.NamespacedName]*infrav1.ElementalHost
	keys  map[indexValue]map[types.NamespacedName]struct{}
}

// indexValue is a value of an index.
type indexValue struct{ field, value string }

func newOwnWrites() ownWrites {
	return ownWrites{
		indexes: index.OfHosts(), hosts: map[types.NamespacedName]*infrav1.ElementalHost{},
		keys: map[indexValue]map[types.NamespacedName]struct{}{},
	}
}

// get returns the own write of a host, or nil.
func (o *ownWrites) get(key types.NamespacedName) *infrav1.ElementalHost {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hosts[key]
}

// all returns all own writes.
func (o *ownWrites) all() []*infrav1.ElementalHost {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.hosts))
}

// find returns the own writes that an index has under the value.
func (o *ownWrites) find(field, value string) []*infrav1.ElementalHost {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := o.keys[indexValue{field, value}]
	if len(keys) == 0 {
		return nil
	}
	found := make([]*infrav1.ElementalHost, 0, len(keys))
	for key := range keys {
		found = append(found, o.hosts[key])
	}
	return found
}

// add adds a write and reports whether it did: it keeps a newer write of the host.
func (o *ownWrites) add(host *infrav1.ElementalHost) bool {
	key := client.ObjectKeyFromObject(host)
	o.mu.Lock()
	defer o.mu.Unlock()
	if before := o.hosts[key]; before != nil && newer(before, host) {
		return false
	}
	o.remove(key)
	o.hosts[key] = host
	for field, values := range o.indexes {
		for _, value := range values(host) {
			entry := indexValue{field, value}
			if o.keys[entry] == nil {
				o.keys[entry] = map[types.NamespacedName]struct{}{}
			}
			o.keys[entry][key] = struct{}{}
		}
	}
	return true
}

// removeIf removes the own write of a host if it matches.
func (o *ownWrites) removeIf(key types.NamespacedName, matches func(*infrav1.ElementalHost) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own := o.hosts[key]; own != nil && matches(own) {
		o.remove(key)
	}
}

// remove removes the own write of a host. The caller holds the lock.
func (o *ownWrites) remove(key types.NamespacedName) {
	host := o.hosts[key]
	if host == nil {
		return
	}
	delete(o.hosts, key)
	for field, values := range o.indexes {
		for _, value := range values(host) {
			entry := indexValue{field, value}
			delete(o.keys[entry], key)
			if len(o.keys[entry]) == 0 {
				delete(o.keys, entry)
			}
		}
	}
}
