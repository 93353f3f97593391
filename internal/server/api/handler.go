package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/enrol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/tunnels"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
)

// Enroller enrols hosts.
type Enroller interface {
	// Pace returns a problem if the caller has to come back later. It is called before the
	// body is read.
	Pace(ctx context.Context, caller enrol.Caller) error
	Enrol(ctx context.Context, caller enrol.Caller) (*infrav1.ElementalHost, error)
}

// Trust authenticates hosts and rotates their keys.
type Trust interface {
	Authenticate(ctx context.Context, fingerprint string, home types.NamespacedName, commit bool) (*infrav1.ElementalHost, error)
	Confirm(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) (*infrav1.ElementalHost, error)
	CheckFence(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) error
	LockReturnedBoot(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) error
	Rotate(ctx context.Context, host *infrav1.ElementalHost, current string, in protocol.RotateRequest) error
}

// Reports writes what hosts report.
type Reports interface {
	// AllowReport reports whether a report of the host is worth reading now; if not, after is
	// when to retry.
	AllowReport(host *infrav1.ElementalHost) (after time.Duration, ok bool)
	RecordReport(ctx context.Context, key types.NamespacedName, fingerprint string, report *protocol.Report) error
}

// PlanInputs reads what plans are computed from.
type PlanInputs interface {
	Site(ctx context.Context, host *infrav1.ElementalHost) (plan.Site, error)
	Cluster(ctx context.Context, host *infrav1.ElementalHost) (plan.Cluster, error)
	Paused(ctx context.Context, host *infrav1.ElementalHost) (bool, error)
}

// BootstrapData finds bootstrap data.
type BootstrapData interface {
	Find(ctx context.Context, host *infrav1.ElementalHost, operation string) (data []byte, format string, err error)
}

// Connections knows which connections have used the key of a known host.
type Connections interface {
	// Authenticated reports it for the connection of an HTTP request.
	Authenticated(ctx context.Context) bool
	// SetAuthenticated records it.
	SetAuthenticated(ctx context.Context, is bool)
}

// Options of a Handler.
type Options struct {
	Clock      clock.PassiveClock
	Timers     *timer.Queue
	Hosts      *hoststore.Store
	Sessions   *session.Tracker
	Budget     *session.WriteBudget
	Enroller   Enroller
	Trust      Trust
	Reports    Reports
	PlanInputs PlanInputs
	Bootstrap  BootstrapData
	// Destinations permit uploads and downloads of snapshots of etcd.
	Destinations Destinations
	// Setups find what hosts that have lost their control plane set it up from.
	Setups Setups
	// Logs keeps the logs that hosts send.
	Logs    Logs
	Tunnels *tunnels.Reviewer
	Audit   *audit.Log
	// Limiter limits HTTP requests of one source on unauthenticated connections, those that
	// need no known key, and those that are refused.
	Limiter     *ratelimit.Limiter
	Connections Connections
	// Agents are downloads of agent binaries, Bundles those of bundles of Kubernetes.
	Agents, Bundles Downloads
	// Installer has the agents that callers without a key may install; nil: none.
	Installer Installer
	Metrics   prometheus.Registerer
	// Draining is closed when the server stops.
	Draining <-chan struct{}
}

// Handler serves the agent API.
type Handler struct {
	clock      clock.PassiveClock
	timers     *timer.Queue
	hosts      *hoststore.Store
	sessions   *session.Tracker
	budget     *session.WriteBudget
	enroller   Enroller
	trust      Trust
	reports    Reports
	planInputs PlanInputs
	bootstraps BootstrapData
	uploads    Destinations
	relay      *snapshotrelay.Relay
	setups     Setups
	logs       Logs
	// receiving has an element for each log that is being received.
	receiving   chan struct{}
	tunnels     *tunnels.Reviewer
	audit       *audit.Log
	limiter     *ratelimit.Limiter
	connections Connections
	agents      *downloads
	bundles     *downloads
	installs    *installs
	metrics     *metrics
	draining    <-chan struct{}
	routes      map[string]map[string]route
}

// New returns a Handler whose metrics are registered.
func New(o Options) (*Handler, error) {
	h := &Handler{
		clock: o.Clock, timers: o.Timers, hosts: o.Hosts, sessions: o.Sessions, budget: o.Budget, enroller: o.Enroller, trust: o.Trust, reports: o.Reports,
		planInputs: o.PlanInputs, bootstraps: o.Bootstrap, uploads: o.Destinations, setups: o.Setups, logs: o.Logs, tunnels: o.Tunnels, audit: o.Audit, limiter: o.Limiter,
		connections: o.Connections, draining: o.Draining, routes: map[string]map[string]route{},
		receiving: make(chan struct{}, concurrentLogs),
	}
	var err error
	if h.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, err
	}
	if h.relay, err = snapshotrelay.New(o.Metrics); err != nil {
		return nil, err
	}
	h.agents, h.bundles = newDownloads("agent", o.Agents, h.metrics), newDownloads("bundle", o.Bundles, h.metrics)
	h.installs = newInstalls(o.Installer, o.Agents.Stall, o.Clock, h.metrics)
	for _, r := range h.routeTable() {
		if h.routes[r.path] == nil {
			h.routes[r.path] = map[string]route{}
		}
		h.routes[r.path][r.method] = r
	}
	return h, nil
}

// access is who may call a route. The zero value permits no caller.
type access int

const (
	// accessPublic permits every caller, also without a key.
	accessPublic access = iota + 1
	// accessKey permits every key, at a limited rate.
	accessKey
	// accessHost permits a known host that is not rejected, locked or fenced.
	accessHost
	// accessFenced is accessHost that permits fenced hosts too, so that they can be reset.
	accessFenced
)

// route is one operation of the API.
type route struct {
	method, path string
	access       access
	handle       func(http.ResponseWriter, *http.Request, caller) error
}

// caller is the authenticated sender of an HTTP request.
type caller struct {
	// fingerprint is that of the key of the TLS connection; blank for accessPublic.
	fingerprint string
	// host must not be changed; nil for accessKey and accessPublic.
	host *infrav1.ElementalHost
}

func (h *Handler) routeTable() []route {
	return []route{
		{http.MethodPost, protocol.PathEnrol, accessKey, h.enrol},
		{http.MethodGet, protocol.PathPlan, accessFenced, h.plan},
		{http.MethodGet, protocol.PathBootstrap, accessHost, h.bootstrap},
		{http.MethodPost, protocol.PathReport, accessFenced, h.report},
		{http.MethodPost, protocol.PathRotate, accessHost, h.rotate},
		{http.MethodGet, protocol.PathAgent, accessHost, h.agentBinary},
		{http.MethodGet, protocol.PathBundle, accessHost, h.bundle},
		{http.MethodGet, protocol.PathTunnel, accessHost, h.tunnel},
		{http.MethodPost, protocol.PathEtcdSnapshotUpload, accessHost, h.etcdSnapshotUpload},
		{http.MethodPost, protocol.PathEtcdSnapshotFetch, accessHost, h.etcdSnapshotFetch},
		{http.MethodGet, protocol.PathEtcdSnapshotRelay, accessHost, h.etcdSnapshotRelay},
		{http.MethodPost, protocol.PathControlPlaneSetup, accessHost, h.controlPlaneSetup},
		{http.MethodPost, protocol.PathLog, accessHost, h.log},
		{http.MethodGet, PathOpenAPI, accessKey, h.openAPI},
		{http.MethodGet, protocol.PathInstall, accessPublic, h.install},
		{http.MethodGet, protocol.PathInstallAgent, accessPublic, h.installAgent},
	}
}

// Routes returns method and path of all routes.
func Routes() []string {
	var out []string
	for _, r := range (&Handler{}).routeTable() {
		out = append(out, r.method+" "+r.path)
	}
	return out
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorded := &statusWriter{ResponseWriter: w}
	w = recorded
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	name, err := h.serve(w, r)
	if err != nil {
		h.answer(w, r, err)
	}
	h.metrics.requests.WithLabelValues(name, codeClass(recorded.status)).Inc()
}

// serve limits the request, finds the route, authenticates the caller and calls the
// handler. It returns the name of the route for metrics, which is the same for all
// unlisted ones.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) (string, error) {
	methods, listed := h.routes[r.URL.Path]
	name := "other"
	if listed {
		name = r.URL.Path
	}
	to, found := methods[r.Method]
	// Before anything is looked up. The requests of known hosts on routes that need one
	// are limited by host instead, as many hosts may share one source.
	known := h.connections.Authenticated(r.Context())
	if (!known || !found || to.access == accessKey) && !h.limiter.Allow(r.RemoteAddr) {
		return name, problem.TooManyRequests(time.Second)
	}
	switch {
	case !listed:
		return name, problem.NotFound()
	case !found:
		for method := range methods {
			w.Header().Add("Allow", method)
		}
		return name, problem.New(http.StatusMethodNotAllowed, problem.Blank, "The route has no such method")
	}
	from, err := h.authenticate(r, to)
	if err == nil {
		err = to.handle(w, r, from)
	}
	return name, err
}

// authenticate returns the caller, if it may call the route.
func (h *Handler) authenticate(r *http.Request, to route) (caller, error) {
	if to.access == accessPublic {
		return caller{}, nil
	}
	fingerprint, err := identity.PeerFingerprint(r.TLS)
	if err != nil {
		return caller{}, problem.UnknownHost()
	}
	switch to.access {
	case accessKey:
		return caller{fingerprint: fingerprint}, nil
	case accessHost, accessFenced:
		home, commit := homeOf(r), to.path != protocol.PathReport
		host, err := h.trust.Authenticate(r.Context(), fingerprint, home, commit)
		if err == nil && commit && (home == client.ObjectKeyFromObject(host) || host.IsGrantedFrom(home)) {
			host, err = h.trust.Confirm(r.Context(), host, fingerprint)
		}
		if refused, ok := errors.AsType[*problem.Error](err); ok && refuses(refused.Status) {
			h.connections.SetAuthenticated(r.Context(), false)
		}
		if err != nil {
			return caller{}, err
		}
		h.connections.SetAuthenticated(r.Context(), true)
		if to.access == accessHost {
			err = h.trust.CheckFence(r.Context(), host, fingerprint)
		}
		return caller{fingerprint: fingerprint, host: host}, err
	default:
		return caller{}, problem.NotFound()
	}
}

// refuses reports whether an answer is a refusal of the request, and not of its rate.
func refuses(status int) bool {
	return status/100 == 4 && status != http.StatusTooManyRequests
}

// homeOf returns the host that the caller was last enrolled as, by its own account; blank if
// it names none.
func homeOf(r *http.Request) types.NamespacedName {
	namespace, name, ok := strings.Cut(r.Header.Get(protocol.HeaderHome), "/")
	if !ok || len(namespace) > validation.DNS1123LabelMaxLength || len(name) > validation.DNS1123SubdomainMaxLength {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// answer sends a problem to the caller. An error that is no problem is logged and not
// revealed.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, err error) {
	var p *problem.Error
	switch {
	case errors.As(err, &p):
	case errors.Is(err, hoststore.ErrGone):
		p = problem.UnknownHost()
	case r.Context().Err() != nil:
		// The caller disconnected, which caused the error.
		p = problem.Busy(time.Second)
	default:
		ctrl.LoggerFrom(r.Context()).Error(err, "Request went wrong", "route", r.URL.Path)
		p = problem.New(http.StatusInternalServerError, problem.Blank, "The request went wrong here")
		p.RetryAfter = 5 * time.Second
	}
	if refuses(p.Status) && !h.connections.Authenticated(r.Context()) {
		// With HTTP/2 too, this closes the connection.
		w.Header().Set("Connection", "close")
	}
	p.Write(w)
}

// codeClass returns "2xx" and so on, or "none" if there was no answer because the caller
// disconnected.
func codeClass(status int) string {
	if status == 0 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}
