package proxy

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of open requests, watches and sessions included.
const (
	maxOfUser    = 100
	maxOfCluster = 400
)

// openRequests counts the open requests of each user and cluster.
type openRequests struct {
	mu        sync.Mutex
	ofUser    map[string]int
	ofCluster map[types.NamespacedName]int
}

func newOpenRequests() *openRequests {
	return &openRequests{ofUser: map[string]int{}, ofCluster: map[types.NamespacedName]int{}}
}

// begin counts a request, and returns false if its user or cluster has too many. After true the
// caller must call end once.
func (o *openRequests) begin(name string, cluster types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ofUser[name] >= maxOfUser || o.ofCluster[cluster] >= maxOfCluster {
		return false
	}
	o.ofUser[name]++
	o.ofCluster[cluster]++
	return true
}

func (o *openRequests) end(name string, cluster types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ofUser[name]--; o.ofUser[name] == 0 {
		delete(o.ofUser, name)
	}
	if o.ofCluster[cluster]--; o.ofCluster[cluster] == 0 {
		delete(o.ofCluster, cluster)
	}
}
