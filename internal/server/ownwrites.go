package server

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// ownWrites are the hosts that were written here and that the cache may not have
// yet, with the cache's indexes: while ten thousand hosts enrol there are always
// hundreds, and each request looks for one.
type ownWrites struct {
	indexes map[string]client.IndexerFunc

	mu    sync.Mutex
	hosts map[types.NamespacedName]*infrav1.ElementalHost
	keys  map[indexed]map[types.NamespacedName]struct{}
}

// indexed is a value of an index.
type indexed struct{ field, value string }

func newOwnWrites() ownWrites {
	return ownWrites{
		indexes: index.OfHosts(), hosts: map[types.NamespacedName]*infrav1.ElementalHost{},
		keys: map[indexed]map[types.NamespacedName]struct{}{},
	}
}

// get returns the write of a host, or nil.
func (o *ownWrites) get(key types.NamespacedName) *infrav1.ElementalHost {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.hosts[key]
}

// find returns the writes that an index has under the value.
func (o *ownWrites) find(field, value string) []*infrav1.ElementalHost {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := o.keys[indexed{field, value}]
	if len(keys) == 0 {
		return nil
	}
	found := make([]*infrav1.ElementalHost, 0, len(keys))
	for key := range keys {
		found = append(found, o.hosts[key])
	}
	return found
}

// add keeps a write, unless there is a newer one.
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
			of := indexed{field, value}
			if o.keys[of] == nil {
				o.keys[of] = map[types.NamespacedName]struct{}{}
			}
			o.keys[of][key] = struct{}{}
		}
	}
	return true
}

// drop forgets the write of a host if it is that.
func (o *ownWrites) drop(key types.NamespacedName, is func(*infrav1.ElementalHost) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if own := o.hosts[key]; own != nil && is(own) {
		o.remove(key)
	}
}

func (o *ownWrites) remove(key types.NamespacedName) {
	host := o.hosts[key]
	if host == nil {
		return
	}
	delete(o.hosts, key)
	for field, values := range o.indexes {
		for _, value := range values(host) {
			of := indexed{field, value}
			delete(o.keys[of], key)
			if len(o.keys[of]) == 0 {
				delete(o.keys, of)
			}
		}
	}
}
