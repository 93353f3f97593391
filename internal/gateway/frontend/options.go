package frontend

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

const (
	// defaultMaxConnections: a client has one or two, as HTTP/2 carries many requests, and one
	// for each session.
	defaultMaxConnections = 4096
	// defaultDrainTimeout is shorter than the manager's own graceful shutdown.
	defaultDrainTimeout = 5 * time.Second

	// readHeaderTimeout bounds the TLS handshake, and then the header of each request.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout closes connections without a request.
	idleTimeout = 3 * time.Minute
	// maxHeaderBytes leaves room for tokens with many groups.
	maxHeaderBytes = 64 << 10
	// maxStreams bounds the requests of one HTTP/2 connection.
	maxStreams = 100
)

// Certificate is the serving certificate.
type Certificate interface {
	// Get implements tls.Config.GetCertificate.
	Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run keeps the certificate up to date until the context ends.
	Run(ctx context.Context) error
}

// Options of a Server. Limits have defaults.
type Options struct {
	// Handlers serve the paths that begin with their key, such as /clusters/. They get paths
	// as callers wrote them, and see every caller: each authenticates by itself.
	Handlers    map[string]http.Handler
	Certificate Certificate
	// TLS changes the TLS configuration, for versions and cipher suites.
	TLS     []func(*tls.Config)
	Metrics prometheus.Registerer
	Clock   clock.WithDelayedExecution

	// Address to listen on, host:port. It is ignored if Listener is set.
	Address  string
	Listener net.Listener
	// MaxConnections bounds open connections. One source may have three quarters of them.
	MaxConnections int
	// DrainTimeout is how long requests may go on when the server stops.
	DrainTimeout time.Duration
}

// withDefaults returns the options with defaults for what is zero.
func (o Options) withDefaults() Options {
	o.MaxConnections = cmp.Or(o.MaxConnections, defaultMaxConnections)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, defaultDrainTimeout)
	return o
}
