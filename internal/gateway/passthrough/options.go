package passthrough

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Defaults of Options.
const (
	// defaultMaxConnections: Cluster API's controllers have about ten connections to each
	// cluster, from one Pod for each controller.
	defaultMaxConnections = 16384
	defaultMaxUnrouted    = 2048
	defaultHelloTimeout   = 5 * time.Second
	// defaultRefuseAfter: Kubernetes' clients wait as long for a TLS handshake, so a later
	// connection would not be used.
	defaultRefuseAfter = 10 * time.Second
	// defaultDrainTimeout is shorter than the manager's own graceful shutdown.
	defaultDrainTimeout = 5 * time.Second
)

// Router connects to workload clusters.
type Router interface {
	// Dial connects to an API server of the cluster whose endpoint has the server name, in
	// lower case. Anybody can ask for any name. Dial must return soon after the context has
	// ended; the end of the context must not end a connection that was returned. An end of
	// the API server's data that is not an error must be io.EOF. If the connection has
	// CloseWrite() error, the ends of both directions are passed on separately.
	Dial(ctx context.Context, serverName string) (net.Conn, error)
}

// Options of a Server. Durations and limits have defaults.
type Options struct {
	Router Router
	// DialErrors are classes of errors of the Router by the outcome that they are counted
	// as, such as "no_route". They are matched by errors.Is. All others are counted as
	// dial_failed.
	DialErrors map[string]error
	Metrics    prometheus.Registerer
	Clock      clock.Clock

	// Address to listen on, host:port. It is ignored if Listener is set.
	Address  string
	Listener net.Listener

	// MaxConnections bounds open connections. One source may have three quarters of them.
	// The limit of open files has to leave room for the agents' connections.
	MaxConnections int
	// MaxUnrouted bounds the connections that are not or not yet routed. One source may have
	// half of them. When all are in use, a source that has fewer takes places of the one that
	// has the most.
	MaxUnrouted int
	// HelloTimeout bounds the time until the ClientHello is complete.
	HelloTimeout time.Duration
	// RefuseAfter is how long after it was accepted a connection is closed that was not
	// routed by then, whatever the reason.
	RefuseAfter time.Duration
	// DrainTimeout is how long routed connections may go on when the server stops.
	DrainTimeout time.Duration
}

// withDefaults returns the options with defaults for what is zero.
func (o Options) withDefaults() Options {
	o.MaxConnections = cmp.Or(o.MaxConnections, defaultMaxConnections)
	o.MaxUnrouted = cmp.Or(o.MaxUnrouted, defaultMaxUnrouted)
	o.HelloTimeout = cmp.Or(o.HelloTimeout, defaultHelloTimeout)
	o.RefuseAfter = cmp.Or(o.RefuseAfter, defaultRefuseAfter)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, defaultDrainTimeout)
	return o
}
