package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/api"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/bootstrapsecret"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/controlplanesetup"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/enrol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hostlog"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/listener"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/planinput"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/snapshotgrant"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/status"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/trust"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/tunnels"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// Limits of connections.
const (
	writeByteTimeout = 30 * time.Second
	// shutdownTimeout is shorter than the manager's own graceful shutdown.
	shutdownTimeout = 6 * time.Second
	// idleTimeout closes connections without an open HTTP request. A connected host polls
	// again at once.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 16 << 10
	maxStreams     = 16
	// noHeaderTable disables header compression tables: 0 would mean the default size, and
	// no header fits into 1 byte.
	noHeaderTable = 1
	// statusWorkers write connection changes, deferred progress and evidence.
	statusWorkers = 8
	// authorityRetry is the interval of attempts to read the CA at the start.
	authorityRetry = 2 * time.Second
)

// Server runs the agent API. It implements manager.Runnable and can be started once.
type Server struct {
	options      Options
	timers       *timer.Queue
	hosts        *hoststore.Store
	sessions     *session.Tracker
	statusQueue  *status.Queue
	status       *status.Recorder
	trust        *trust.Authenticator
	enroller     *enrol.Enroller
	handler      *api.Handler
	certificates *listener.Certificates
	connections  *listener.Connections
	events       *eventHandler
	tunnels      *tunnels.Table
	reviewer     *tunnels.Reviewer
	label        *podLabel
	// draining is closed when the server stops.
	draining chan struct{}
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// New returns a Server whose metrics are registered.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{
		options: o, timers: timer.NewQueue(o.Clock), statusQueue: status.NewQueue(),
		label: &podLabel{writer: o.Client, pod: o.Pod}, draining: make(chan struct{}),
		certificates: listener.NewCertificates(o.Authority, o.Client, o.Clock, o.URL, ServiceName+"."+o.Namespace+".svc"),
	}
	decisions, err := audit.New(o.Clock, o.Metrics)
	if err != nil {
		return nil, err
	}
	connectionMetrics, err := listener.NewMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	s.connections = listener.NewConnections(listener.ConnectionsOptions{
		Clock: o.Clock, Timers: s.timers, MaxHandshakes: o.MaxHandshakes, MaxUnauthenticated: o.MaxUnauthenticated, Metrics: connectionMetrics,
	})
	s.sessions, err = session.New(session.Options{
		Clock: o.Clock, Grace: o.DisconnectGrace, Timers: s.timers, Enqueue: s.statusQueue.Add, Metrics: o.Metrics,
	})
	if err != nil {
		return nil, err
	}
	s.hosts = hoststore.New(hoststore.Options{Client: o.Client, APIReader: o.APIReader, Clock: o.Clock, Timers: s.timers, Recorder: o.Recorder})
	inputs := planinput.NewReader(o.Client, o.Clock, o.Authority, o.URL, o.Images)
	s.tunnels = tunnels.NewTable(o.Clock, func(host types.NamespacedName) { s.reviewer.StateChanged(host) })
	if err := s.tunnels.Register(o.Metrics); err != nil {
		return nil, err
	}
	s.reviewer = tunnels.NewReviewer(tunnels.ReviewerOptions{
		Table: s.tunnels, Hosts: s.hosts, Plans: inputs, Boots: s.sessions, Audit: decisions, Clock: o.Clock, Timers: s.timers,
		Grace: o.DisconnectGrace, Enqueue: s.statusQueue.Add,
	})
	waker := waker{polls: s.sessions, tunnels: s.reviewer}
	s.events = &eventHandler{
		hosts: s.hosts, sessions: s.sessions, audit: decisions, certificates: s.certificates,
		plans: planinput.NewNotifier(inputs, waker, s.timers), waker: waker,
	}
	budget := session.NewWriteBudget(o.Clock)
	s.status, err = status.NewRecorder(status.Options{
		Hosts: s.hosts, Sessions: s.sessions, Budget: budget, Clusters: inputs, Tunnels: s.reviewer, Queue: s.statusQueue, Clock: o.Clock, Metrics: o.Metrics,
	})
	if err != nil {
		return nil, err
	}
	keys := enrol.NewKeyHistory(o.Client, o.APIReader)
	s.trust = trust.New(trust.Options{
		Hosts: s.hosts, Keys: keys, Audit: decisions, Polls: waker, Recorder: o.Recorder, Clock: o.Clock, Timers: s.timers,
	})
	s.enroller, err = enrol.New(enrol.Options{
		Client: o.Client, APIReader: o.APIReader, Hosts: s.hosts, Keys: keys, Trust: s.trust, Status: s.status, Sessions: s.sessions, Audit: decisions,
		Recorder: o.Recorder, Metrics: o.Metrics, Clock: o.Clock, Timers: s.timers, MaxConcurrent: o.MaxEnrolments, Draining: s.draining,
	})
	if err != nil {
		return nil, err
	}
	bootstraps := bootstrapsecret.NewFinder(o.Client, o.APIReader)
	s.handler, err = api.New(api.Options{
		Clock: o.Clock, Timers: s.timers, Hosts: s.hosts, Sessions: s.sessions, Budget: budget, Enroller: s.enroller, Trust: s.trust, Reports: s.status,
		PlanInputs: inputs, Bootstrap: bootstraps,
		Destinations: snapshotgrant.New(o.APIReader, o.Clock, o.SnapshotRelays), Setups: controlplanesetup.New(o.APIReader, bootstraps),
		Logs: &hostlog.Receiver{
			Client: o.Client, APIReader: o.APIReader, Hosts: s.hosts, Audit: decisions, Recorder: o.Recorder, Clock: o.Clock,
		},
		Tunnels: s.reviewer, Audit: decisions,
		Limiter: ratelimit.New(o.Clock, o.EnrolRate, o.EnrolBurst), Connections: s.connections,
		Agents:    api.Downloads{Files: o.Agents, Limit: o.AgentDownloads, Stall: o.DownloadStall},
		Bundles:   api.Downloads{Files: o.Bundles, Limit: o.BundleDownloads, Stall: o.DownloadStall},
		Installer: o.Agents, Metrics: o.Metrics, Draining: s.draining,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// SetupWithManager adds the server to the manager. Only the leader starts it; every replica
// removes a stale leader label from its Pod.
func (s *Server) SetupWithManager(mgr manager.Manager) error {
	if err := mgr.Add(labelCleaner{s.label}); err != nil {
		return fmt.Errorf("adding label cleaner: %w", err)
	}
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("adding agent API: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *Server) NeedLeaderElection() bool { return true }

// Ask asks a host for a new report of its control plane endpoint: see session.Tracker.
func (s *Server) Ask(host types.NamespacedName) failover.Contact { return s.sessions.Ask(host) }

// Dial connects to a target, such as protocol.TargetAPIServer, through a host's tunnel. The
// context bounds the dial, not the connection. The errors are those of package tunnel:
// tunnel.ErrAbsent if the host has no tunnel. status.tunnel of the ElementalHost says
// whether it has one, with the delay of a status.
func (s *Server) Dial(ctx context.Context, host types.NamespacedName, target string) (net.Conn, error) {
	return s.tunnels.Dial(ctx, host, target)
}

// Streams returns how many connections a host's tunnel carries.
func (s *Server) Streams(host types.NamespacedName) int { return s.tunnels.Streams(host) }

// RecordRequest records in the audit log who requests a change of a host. It also works
// before Start, and on a replica that is not the leader.
func (s *Server) RecordRequest(ctx context.Context, user, source string, before, after *infrav1.ElementalHost) {
	s.events.audit.RecordRequest(ctx, user, source, before, after)
}

// RecordRestore is RecordRequest for an ElementalEtcdRestore.
func (s *Server) RecordRestore(ctx context.Context, user, source string, before, after *infrav1.ElementalEtcdRestore) {
	s.events.audit.RecordRestore(ctx, user, source, before, after)
}

// RecordGrant is RecordRequest for an ElementalHostGrant.
func (s *Server) RecordGrant(ctx context.Context, user, source string, before, after *infrav1.ElementalHostGrant) {
	s.events.audit.RecordGrant(ctx, user, source, before, after)
}

// RecordRegistration is RecordRequest for an ElementalRegistration.
func (s *Server) RecordRegistration(ctx context.Context, user, source string, before, after *infrav1.ElementalRegistration) {
	s.events.audit.RecordRegistration(ctx, user, source, before, after)
}

// ServeHTTP implements http.Handler, for tests without a listener.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Start serves until the context ends. Then it ends all polls and finishes HTTP requests
// that are in progress.
func (s *Server) Start(ctx context.Context) error {
	logger := ctrl.LoggerFrom(ctx).WithName("agent-api")
	ctx = ctrl.LoggerInto(ctx, logger)
	defer s.statusQueue.ShutDown()
	if err := s.waitForAuthority(ctx); err != nil {
		return nil // the context has ended
	}
	s.trust.Start()
	s.reviewer.Start()
	stopWatching, err := s.events.watch(ctx, s.options.Informers)
	if err != nil {
		return err
	}
	defer stopWatching()
	defer s.options.Authority.Subscribe(s.authorityChanged)()
	inner := s.options.Listener
	if inner == nil {
		if inner, err = tcp.Listen(ctx, s.options.Address); err != nil {
			return fmt.Errorf("listening for agents: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// HTTP requests in progress are finished after the context has ended, and so are
	// their writes.
	lasting := context.WithoutCancel(ctx)
	tlsConfig := listener.TLSConfig(s.certificates)
	httpServer := s.httpServer(lasting, tlsConfig, logger)
	connections := listener.New(listener.Options{
		Inner: inner, TLS: tlsConfig, Limiter: ratelimit.New(s.options.Clock, s.options.ConnectionRate, s.options.ConnectionBurst),
		Connections: s.connections, Known: s.knownKey, Proxies: s.options.Proxies, MaxProxied: s.options.MaxHandshakes,
		HandshakeTimeout: s.options.HandshakeTimeout, Logger: logger,
	})
	var group sync.WaitGroup
	group.Go(func() { connections.Run(lasting) })
	group.Go(func() { s.timers.Run(ctx) })
	for range statusWorkers {
		group.Go(func() { s.status.Work(lasting) })
	}
	failed := make(chan error, 1)
	group.Go(func() {
		if err := httpServer.Serve(connections); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving agents: %w", err)
		}
	})
	logger.Info("Serving agents", "address", inner.Addr().String())
	err = s.label.set(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	cancel()
	s.drain(lasting, httpServer, connections)
	group.Wait()
	s.enroller.Wait()
	return err
}

// knownKey reports whether a host may call with the key. It reads the cache only. The
// namespace of the host is not known before its first request, so a key of several hosts
// counts as known: otherwise naming a key elsewhere would slow its host down.
func (s *Server) knownKey(ctx context.Context, fingerprint string) bool {
	host, _, err := s.hosts.ByKey(ctx, fingerprint, types.NamespacedName{})
	return errors.Is(err, hoststore.ErrAmbiguousKey) || err == nil && host != nil && hoststore.AcceptsKey(host, fingerprint)
}

// waitForAuthority waits until the CA can be read. It returns an error only if the context
// ends.
func (s *Server) waitForAuthority(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, authorityRetry, true, func(ctx context.Context) (bool, error) {
		_, err := s.options.Authority.Bundle(ctx)
		if err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Agents can't be served yet")
		}
		return err == nil, nil
	})
}

// authorityChanged makes the next handshake use the CA's current key, and sends the CA
// certificates to all waiting hosts.
func (s *Server) authorityChanged() {
	s.certificates.AuthorityChanged()
	s.sessions.WakeAll()
}

// drain ends all polls and tunnels, so that agents connect to the next leader, and waits for
// other HTTP requests.
func (s *Server) drain(ctx context.Context, httpServer *http.Server, connections *listener.Listener) {
	close(s.draining)
	_ = connections.Close()
	s.tunnels.Close()
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	if err := httpServer.Shutdown(ctx); err != nil {
		_ = httpServer.Close()
	}
	s.statusQueue.ShutDown()
}

// httpServer returns the HTTP server. The listener makes the TLS handshakes; the server uses
// the TLS configuration for its protocols only.
func (s *Server) httpServer(ctx context.Context, tlsConfig *tls.Config, logger logr.Logger) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           s.handler,
		Protocols:         protocols,
		TLSConfig:         tlsConfig.Clone(),
		ReadHeaderTimeout: s.options.HandshakeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      s.options.PingAfter,
			PingTimeout:          s.options.PingTimeout,
			WriteByteTimeout:     writeByteTimeout,
			// Agents disable their table too: the memory of two tables for each
			// connection is worth more than a few compressed headers.
			MaxEncoderHeaderTableSize: noHeaderTable,
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return s.connections.WithConnection(audit.WithConnection(ctx, conn), conn)
		},
		// Any caller can cause its messages.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug),
	}
}
