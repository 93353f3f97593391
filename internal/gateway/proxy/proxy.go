package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
)

// Errors of Clusters that callers are told.
var (
	// ErrNoCluster: there is no such cluster, or it has no proxy.
	ErrNoCluster = errors.New("no cluster with access through the gateway has this name")
	// ErrUnreachable: the cluster's API servers can't be reached now.
	ErrUnreachable = errors.New("no API server of the cluster can be reached")
)

// Clusters connects to the API servers of workload clusters.
type Clusters interface {
	// Connect returns a connection for requests as the identity. It must be safe for
	// concurrent use. Of its errors, callers are told ErrNoCluster and ErrUnreachable.
	Connect(ctx context.Context, cluster types.NamespacedName, as Identity) (Connection, error)
}

// Connection leads to the API server of a workload cluster.
type Connection struct {
	// Requests carries requests and watches. Upgrades carries requests that are upgraded, by
	// HTTP/1.1.
	Requests, Upgrades http.RoundTripper
	// Host is the name of the API server, as in its certificate.
	Host string
	// Token is a bearer token that may impersonate the identity, and should have no other
	// rights.
	Token string
}

// Options of a Proxy.
type Options struct {
	// Authenticator knows the users of the management cluster. It may remove credentials
	// from the request. Its error is review.ErrUnavailable if it could not ask.
	Authenticator authenticator.Request
	// Authorizer knows their rights in the management cluster.
	Authorizer authorizer.Authorizer
	Clusters   Clusters
	Clock      clock.WithTicker
	// Audit gets a line for each request that was forwarded.
	Audit   logr.Logger
	Metrics prometheus.Registerer
}

// Proxy is the handler of proxied requests. Use New. A server of it must not have a write
// timeout, which would end watches and sessions.
type Proxy struct {
	o       Options
	gate    Gate
	open    *openRequests
	metrics *metrics
}

// New returns a Proxy. It fails if its metrics are registered already.
func New(o Options) (*Proxy, error) {
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	gate := Gate{Authenticator: o.Authenticator, Authorizer: o.Authorizer, Subresource: "proxy"}
	return &Proxy{o: o, gate: gate, open: newOpenRequests(), metrics: m}, nil
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := &recorder{ResponseWriter: w}
	defer func() { p.metrics.requests.WithLabelValues(codeClass(recorded.code)).Inc() }()
	if err := p.serve(recorded, r); err != nil {
		Refuse(recorded, r, err)
	}
}

// serve forwards a request, or returns why not.
func (p *Proxy) serve(w *recorder, r *http.Request) error {
	credentials := r.Clone(r.Context())
	u, err := p.gate.authenticate(r)
	if err != nil {
		return err
	}
	to, err := targetOf(r.URL)
	if err != nil {
		return badRequest(err)
	}
	as, err := p.gate.admit(r, u, to.cluster)
	if err != nil {
		return err
	}
	if !p.open.begin(u.GetName(), to.cluster) {
		return tooManyRequests()
	}
	defer p.open.end(u.GetName(), to.cluster)
	connection, err := p.o.Clusters.Connect(r.Context(), to.cluster, as)
	if err != nil {
		return ConnectError(err)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go p.judge(ctx, cancel, credentials.WithContext(ctx), as, to.cluster)
	p.forward(w, r.WithContext(ctx), to, as, connection)
	return nil
}

// forward sends the request to the cluster and copies the answer, or both directions after an
// upgrade, until the request's context ends.
func (p *Proxy) forward(w *recorder, r *http.Request, to target, as Identity, connection Connection) {
	auditID := string(uuid.NewUUID())
	began := p.o.Clock.Now()
	transport := connection.Requests
	if r.Header.Get("Upgrade") != "" {
		transport = connection.Upgrades
	}
	forwarder := &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			out := request.Out
			out.URL.Scheme, out.URL.Host, out.URL.Path, out.URL.RawPath = "https", connection.Host, to.path, to.rawPath
			out.Host = connection.Host
			out.Header = headerFor(out.Header, as, connection.Token, auditID)
			out.Trailer = nil
		},
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			response.Header.Del("Set-Cookie")
			response.Header.Set(auditIDHeader, auditID)
			keepInside(response.Header, connection.Host, to.cluster)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			writeError(w, unavailable(fmt.Errorf("%w: %w", ErrUnreachable, err)))
		},
		// The recorder's code and the audit line say what failed.
		ErrorLog: log.New(discard{}, "", 0),
	}
	defer func() {
		p.o.Audit.Info("Proxied", "user", as.User, "cluster", to.cluster.String(), "method", r.Method, "path", to.rawPath,
			"code", w.code, "auditID", auditID, "seconds", p.o.Clock.Since(began).Round(time.Millisecond).Seconds())
	}()
	forwarder.ServeHTTP(w, r)
}

// keepInside makes a redirect lead to the same cluster through the proxy.
func keepInside(header http.Header, host string, cluster types.NamespacedName) {
	location := header.Get("Location")
	if location == "" {
		return
	}
	u, err := url.Parse(location)
	if err != nil || u.Host != "" && u.Host != host || !strings.HasPrefix(u.Path, "/") {
		return
	}
	at := prefix + cluster.Namespace + "/" + cluster.Name
	// The path keeps its encoding: names of proxied Services have encoded slashes.
	inside := url.URL{Path: at + u.Path, RawPath: at + u.EscapedPath(), RawQuery: u.RawQuery, Fragment: u.Fragment}
	header.Set("Location", inside.String())
}

// discard is where httputil.ReverseProxy logs.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
