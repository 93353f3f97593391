package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// Defaults of Options.
const (
	DefaultDisconnectGrace = 120 * time.Second
	// The kernels ask far sooner; this is for proxies in between, whose own
	// connections live while the ones behind them are dead.
	DefaultPingAfter   = 3 * time.Minute
	DefaultPingTimeout = 15 * time.Second
	DefaultEnrolRate   = 200
	DefaultEnrolBurst  = 1000
	// More at once only wait for each other at the API server.
	DefaultMaxEnrolments = 16
	// 10,000 hosts behind one NAT may connect at once.
	DefaultConnectionRate   = 1000
	DefaultConnectionBurst  = 12000
	DefaultMaxHandshakes    = 1024
	DefaultHandshakeTimeout = 10 * time.Second
)

// Limits of a connection.
const (
	writeByteTimeout = 30 * time.Second
	// shutdownTimeout is below what the manager leaves its parts.
	shutdownTimeout = 6 * time.Second
	// idleTimeout ends connections without a request. Hosts are without one for a
	// moment.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 16 << 10
	maxStreams     = 16
	// noHeaderTable is the smallest size that means itself: nothing fits in.
	noHeaderTable  = 1
	workers        = 8
	retryAuthority = 2 * time.Second
)

// Options of a Server.
type Options struct {
	// Client reads from a cache that has the indexes of package index, and writes.
	Client client.Client
	// APIReader reads past the cache.
	APIReader client.Reader
	// Informers is the cache of Client.
	Informers Informers
	// Authority issues the serving certificates.
	Authority Authority
	// Recorder records Events on ElementalHosts.
	Recorder events.EventRecorder
	// Metrics takes the API's metrics.
	Metrics prometheus.Registerer
	// Clock is the time source.
	Clock clock.Clock

	// Address to listen on, host:port. Listener, if set, is used instead.
	Address  string
	Listener net.Listener
	// URL that hosts are told unless their registration says otherwise; may be
	// blank.
	URL string
	// Namespace of the manager, which names the Service.
	Namespace string
	// Pod is the manager's own; blank outside of a cluster.
	Pod types.NamespacedName

	// DisconnectGrace is how long a host without an open poll still counts as
	// connected.
	DisconnectGrace time.Duration
	// PingAfter is how long a connection is silent before the host at its other end is
	// asked whether it is there, PingTimeout how long the answer may take.
	PingAfter, PingTimeout time.Duration
	// Agents has the agents' binaries; without it hosts are not updated.
	Agents AgentFiles
	// AgentDownloads is how many hosts may fetch an agent at once. AgentStall is
	// how long a piece of it may take to leave.
	AgentDownloads int
	AgentStall     time.Duration
	// EnrolRate and EnrolBurst limit requests of one source that need no known
	// key, and those that fail for want of one.
	EnrolRate  float64
	EnrolBurst int
	// MaxEnrolments bounds the enrolments under way; further hosts wait, and are
	// asked to come back when that takes long.
	MaxEnrolments int
	// ConnectionRate and ConnectionBurst limit new connections of one source,
	// before anything is computed for them.
	ConnectionRate  float64
	ConnectionBurst int
	// MaxHandshakes bounds the TLS handshakes under way; further connections wait,
	// and those of a source that has half of them are closed.
	// HandshakeTimeout is how long one may take, and then a request's header.
	MaxHandshakes    int
	HandshakeTimeout time.Duration
}

// Server is the agent API. It implements manager.Runnable and can be started
// once.
type Server struct {
	client           client.Client
	live             client.Reader
	informers        Informers
	authority        Authority
	clock            clock.Clock
	url              string
	address          string
	listener         net.Listener
	pingAfter        time.Duration
	pingTimeout      time.Duration
	handshakes       int
	handshakeTimeout time.Duration
	routes           map[string]map[string]route
	schedule         *schedule
	hosts            *hosts
	presence         *presence
	ledger           *ledger
	limiter          *limiter
	connections      *limiter
	rotated          *rotations
	spared           *sparing
	pending          *pendingHosts
	certificates     *certificates
	downloads        *downloads
	metrics          *metrics
	label            *podLabel
	enrolling        locks
	attempts         *attempts
	turns            *turns
	queue            workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// draining is closed when the server is about to end.
	draining chan struct{}
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// New makes a Server from Options, of which the durations and rates have
// defaults.
func New(o Options) (*Server, error) {
	s := &Server{
		client: o.Client, live: o.APIReader, informers: o.Informers, authority: o.Authority, clock: o.Clock,
		url: o.URL, address: o.Address, listener: o.Listener,
		pingAfter:        withDefault(o.PingAfter, DefaultPingAfter),
		pingTimeout:      withDefault(o.PingTimeout, DefaultPingTimeout),
		schedule:         newSchedule(o.Clock),
		ledger:           newLedger(o.Client, o.APIReader, o.Clock),
		handshakes:       withDefault(o.MaxHandshakes, DefaultMaxHandshakes),
		handshakeTimeout: withDefault(o.HandshakeTimeout, DefaultHandshakeTimeout),
		spared:           &sparing{clock: o.Clock, said: map[decision]*said{}},
		connections:      newLimiter(o.Clock, withDefault(o.ConnectionRate, DefaultConnectionRate), withDefault(o.ConnectionBurst, DefaultConnectionBurst)),
		limiter:          newLimiter(o.Clock, withDefault(o.EnrolRate, DefaultEnrolRate), withDefault(o.EnrolBurst, DefaultEnrolBurst)),
		label:            &podLabel{writer: o.Client, pod: o.Pod},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		draining: make(chan struct{}),
	}
	s.hosts = &hosts{
		client: o.Client, live: o.APIReader, clock: o.Clock, schedule: s.schedule, recorder: o.Recorder,
		own: newOwnWrites(),
	}
	s.turns = newTurns(o.Clock, withDefault(o.MaxEnrolments, DefaultMaxEnrolments), s.draining)
	s.attempts = &attempts{clock: o.Clock, schedule: s.schedule, hosts: map[string]*infrav1.ElementalHost{}}
	s.pending = &pendingHosts{hosts: s.hosts, underway: map[pendingKey]int{}}
	s.rotated = &rotations{clock: o.Clock, schedule: s.schedule, at: map[types.NamespacedName]time.Time{}}
	s.presence = newPresence(o.Clock, withDefault(o.DisconnectGrace, DefaultDisconnectGrace), s.schedule, s.queue.Add)
	s.certificates = &certificates{
		authority: o.Authority, reader: o.Client, clock: o.Clock, url: o.URL,
		serviceDNS: ServiceName + "." + o.Namespace + ".svc",
	}
	s.downloads = newDownloads(o)
	var err error
	if s.metrics, err = newMetrics(o.Metrics, func() float64 { return float64(s.presence.polling.Load()) }); err != nil {
		return nil, err
	}
	s.routes = map[string]map[string]route{}
	for _, r := range s.routeTable() {
		if s.routes[r.path] == nil {
			s.routes[r.path] = map[string]route{}
		}
		s.routes[r.path][r.method] = r
	}
	return s, nil
}

// SetupWithManager adds the server to the leader's duties, and to every replica's
// that it takes a stale mark off its Pod.
func (s *Server) SetupWithManager(mgr manager.Manager) error {
	if err := mgr.Add(follower{s.label}); err != nil {
		return fmt.Errorf("adding follower: %w", err)
	}
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("adding agent API: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: there is one
// process to know who is connected.
func (s *Server) NeedLeaderElection() bool { return true }

// Start serves until the context ends, then lets go of all hosts in good order.
func (s *Server) Start(ctx context.Context) error {
	logger := ctrl.LoggerFrom(ctx).WithName("agent-api")
	ctx = ctrl.LoggerInto(ctx, logger)
	defer s.queue.ShutDown()
	if err := s.loadAuthority(ctx); err != nil {
		return nil // it only gives up when the process ends
	}
	s.rotated.started = s.clock.Now()
	stopWatching, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer stopWatching()
	defer s.authority.Subscribe(s.rootsChanged)()
	listener := s.listener
	if listener == nil {
		if listener, err = tcp.Listen(ctx, s.address); err != nil {
			return fmt.Errorf("listening for agents: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Requests under way are finished when the process is about to end, so they
	// and their writes don't end with its context.
	lasting := context.WithoutCancel(ctx)
	httpServer := s.httpServer(lasting, logger)
	gate := s.newGate(listener, logger)
	var group sync.WaitGroup
	group.Go(func() { gate.run(lasting) })
	group.Go(func() { s.schedule.run(ctx) })
	for range workers {
		group.Go(func() { s.work(lasting) })
	}
	failed := make(chan error, 1)
	group.Go(func() {
		if err := httpServer.Serve(gate); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving agents: %w", err)
		}
	})
	logger.Info("Serving agents", "address", listener.Addr().String())
	err = s.label.set(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	cancel()
	s.drain(lasting, httpServer, gate)
	group.Wait()
	s.ledger.running.Wait()
	return err
}

// loadAuthority waits until there is an authority.
func (s *Server) loadAuthority(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, retryAuthority, true, func(ctx context.Context) (bool, error) {
		_, err := s.authority.Bundle(ctx)
		if err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Agents can't be served yet")
		}
		return err == nil, nil
	})
}

// drain ends all polls, so that agents look for the next leader, and waits for
// what is under way.
func (s *Server) drain(ctx context.Context, httpServer *http.Server, gate *gate) {
	close(s.draining)
	_ = gate.Close()
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	if err := httpServer.Shutdown(ctx); err != nil {
		_ = httpServer.Close()
	}
	s.queue.ShutDown()
}

func (s *Server) newGate(listener net.Listener, logger logr.Logger) *gate {
	return &gate{
		Listener: listener, sources: s.connections, timeout: s.handshakeTimeout, refused: s.metrics.refused.Inc, logger: logger,
		config: s.tlsConfig(), slots: make(chan struct{}, s.handshakes), share: max(1, s.handshakes/2),
		computing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), ready: make(chan net.Conn), closed: make(chan struct{}),
		shaking: map[net.Conn]struct{}{}, shares: map[netip.Prefix]int{},
	}
}

func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{"h2", "http/1.1"},
		ClientAuth:     tls.RequireAnyClientCert,
		GetCertificate: s.certificates.get,
		// Every connection proves the key afresh.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := identity.PeerFingerprint(&state)
			return err
		},
	}
}

// httpServer serves connections whose handshake is made.
func (s *Server) httpServer(ctx context.Context, logger logr.Logger) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           s,
		Protocols:         protocols,
		TLSConfig:         s.tlsConfig(), // tells the server which protocols there are
		ReadHeaderTimeout: s.handshakeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      s.pingAfter,
			PingTimeout:          s.pingTimeout,
			WriteByteTimeout:     writeByteTimeout,
			// Headers are not worth being remembered for compression at both ends, as
			// agents' are not either.
			MaxEncoderHeaderTableSize: noHeaderTable,
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, sourceKey{}, conn)
		},
		ErrorLog: log.New(verbose{logger}, "", 0),
	}
}

// verbose writes the HTTP server's own messages for those who ask for details.
type verbose struct {
	logger logr.Logger
}

// Write implements io.Writer.
func (v verbose) Write(message []byte) (int, error) {
	v.logger.V(4).Info("HTTP server", "message", string(message))
	return len(message), nil
}

func withDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
