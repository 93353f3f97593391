package router

import (
	"errors"
	"net"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// connections are the open connections, by host and by cluster. The zero value is ready to
// use, by several goroutines.
type connections struct {
	mu        sync.Mutex
	byHost    map[types.NamespacedName]map[*conn]struct{}
	byCluster map[types.NamespacedName]*site
}

// site is a cluster that has open connections.
type site struct {
	conns map[*conn]struct{}
	// last is the host that carries the newest connection.
	last types.NamespacedName
}

// conn is a connection to an API server. Close removes it from the open ones.
type conn struct {
	net.Conn

	open *connections
	by   route
	host types.NamespacedName
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.open.remove(c)
	return c.Conn.Close()
}

// CloseWrite ends the data for the API server only.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// add registers a connection.
func (o *connections) add(stream net.Conn, by route, host types.NamespacedName) *conn {
	c := &conn{Conn: stream, open: o, by: by, host: host}
	cluster := by.cluster
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byHost == nil {
		o.byHost, o.byCluster = map[types.NamespacedName]map[*conn]struct{}{}, map[types.NamespacedName]*site{}
	}
	if o.byHost[host] == nil {
		o.byHost[host] = map[*conn]struct{}{}
	}
	o.byHost[host][c] = struct{}{}
	if o.byCluster[cluster] == nil {
		o.byCluster[cluster] = &site{conns: map[*conn]struct{}{}}
	}
	o.byCluster[cluster].conns[c] = struct{}{}
	o.byCluster[cluster].last = host
	return c
}

func (o *connections) remove(c *conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.byHost[c.host], c); len(o.byHost[c.host]) == 0 {
		delete(o.byHost, c.host)
	}
	if at := o.byCluster[c.by.cluster]; at != nil {
		if delete(at.conns, c); len(at.conns) == 0 {
			delete(o.byCluster, c.by.cluster)
		}
	}
}

// last returns the host that carries the cluster's newest connection; blank without any.
func (o *connections) last(cluster types.NamespacedName) types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := o.byCluster[cluster]; at != nil {
		return at.last
	}
	return types.NamespacedName{}
}

// ofHost returns the connections through a host.
func (o *connections) ofHost(host types.NamespacedName) []*conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return keys(o.byHost[host])
}

// ofCluster returns the connections to a cluster.
func (o *connections) ofCluster(cluster types.NamespacedName) []*conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := o.byCluster[cluster]; at != nil {
		return keys(at.conns)
	}
	return nil
}

func keys(set map[*conn]struct{}) []*conn {
	list := make([]*conn, 0, len(set))
	for c := range set {
		list = append(list, c)
	}
	return list
}
