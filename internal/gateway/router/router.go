package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/endpointname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

const (
	// maxDials is how many hosts are dialed for one connection.
	maxDials = 3
	// dialTimeout bounds the dial of one host, so that there is time for the next. The
	// agent itself gives up after 3 s.
	dialTimeout = 4 * time.Second
)

// Errors of Dial, beside those of package tunnel.
var (
	// ErrNoRoute says that no cluster has the name, or its hosts have no tunnels.
	ErrNoRoute = errors.New("no cluster with tunnels has this name")
	// ErrNoHost says that the cluster has no host that may carry connections.
	ErrNoHost = errors.New("cluster has no host that may carry connections")
)

// Tunnels are the tunnels of hosts.
type Tunnels interface {
	// Dial connects to a target through a host's tunnel. It returns tunnel.ErrAbsent if the
	// host has none. The context bounds the dial, not the connection.
	Dial(ctx context.Context, host types.NamespacedName, target string) (net.Conn, error)
	// Streams returns how many connections a host's tunnel carries.
	Streams(host types.NamespacedName) int
}

// Options of a Router.
type Options struct {
	// Cache has hosts, Machines and clusters with the indexes of package index.
	Cache   client.Reader
	Tunnels Tunnels
	// Names derives the names of endpoints.
	Names endpointname.Names
}

// Router dials API servers. Several goroutines may use it.
type Router struct {
	options Options
	open    connections
}

// route is how a connection finds its cluster.
type route struct {
	// serverName is the name of the cluster's endpoint; blank for a connection that names the
	// cluster itself.
	serverName string
	cluster    types.NamespacedName
}

// New returns a Router. It ends connections only after Watch.
func New(o Options) *Router { return &Router{options: o} }

// DialErrors returns the classes of errors of Dial, by the outcome that they are counted as.
func DialErrors() map[string]error {
	return map[string]error{
		"no_route": ErrNoRoute, "no_host": ErrNoHost, "no_tunnel": tunnel.ErrAbsent, "tunnel_closed": tunnel.ErrClosed,
		"refused": tunnel.ErrRefused, "no_answer": tunnel.ErrFiltered, "too_many_streams": tunnel.ErrTooManyStreams,
	}
}

// Dial connects to an API server of the cluster whose endpoint has the name, in any case. The
// context bounds the dial, not the connection. Hosts are tried in their order; those that
// turn out to have no tunnel don't count.
func (r *Router) Dial(ctx context.Context, serverName string) (net.Conn, error) {
	serverName = strings.ToLower(serverName)
	cluster, err := r.clusterOf(ctx, serverName)
	if err != nil {
		return nil, err
	}
	return r.dialRoute(ctx, route{serverName: serverName, cluster: cluster})
}

// DialCluster connects to an API server of the cluster as Dial does, whatever the type of its
// endpoint is. It is for callers who have authorized a user.
func (r *Router) DialCluster(ctx context.Context, cluster types.NamespacedName) (net.Conn, error) {
	if err := r.hasTunnels(ctx, cluster); err != nil {
		return nil, err
	}
	return r.dialRoute(ctx, route{cluster: cluster})
}

func (r *Router) dialRoute(ctx context.Context, by route) (net.Conn, error) {
	candidates, err := r.candidates(ctx, by.cluster)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, c := range candidates {
		if len(failures) == maxDials || ctx.Err() != nil {
			break
		}
		conn, err := r.dial(ctx, by, c)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, tunnel.ErrAbsent) {
			failures = append(failures, err)
		}
	}
	switch {
	case len(failures) > 0:
		return nil, fmt.Errorf("connecting to cluster %s: %w", by.cluster, errors.Join(failures...))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("connecting to cluster %s: %w", by.cluster, context.Cause(ctx))
	case len(candidates) > 0:
		return nil, fmt.Errorf("connecting to cluster %s through %d hosts: %w", by.cluster, len(candidates), tunnel.ErrAbsent)
	default:
		return nil, fmt.Errorf("connecting to cluster %s: %w", by.cluster, ErrNoHost)
	}
}

// dial connects through one host. It checks the host again after the connection is registered:
// changes during the dial end no connection, later changes do.
func (r *Router) dial(ctx context.Context, by route, chosen candidate) (net.Conn, error) {
	attempt, cancel := context.WithTimeoutCause(ctx, dialTimeout, tunnel.ErrFiltered)
	defer cancel()
	stream, err := r.options.Tunnels.Dial(attempt, chosen.host, protocol.TargetAPIServer)
	if err != nil {
		return nil, fmt.Errorf("dialing through host %s: %w", chosen.host.Name, err)
	}
	conn := r.open.add(stream, by, chosen.host)
	if err := r.check(ctx, by, chosen); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// check returns an error if the host may no longer carry connections of that route, or its
// API server has stopped being ready.
func (r *Router) check(ctx context.Context, by route, chosen candidate) error {
	if err := r.confirm(ctx, by); err != nil {
		return err
	}
	candidates, err := r.candidates(ctx, by.cluster)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		if c.host == chosen.host && c.claim == chosen.claim && c.kind <= chosen.kind {
			return nil
		}
	}
	return fmt.Errorf("host %s changed during the dial: %w", chosen.host.Name, ErrNoHost)
}
