package frontend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Server serves users. It implements manager.Runnable and can be started once.
type Server struct {
	options Options
	metrics *metrics
	router  *router
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// New returns a Server whose metrics are registered.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	return &Server{options: o, metrics: m, router: newRouter(o.Handlers)}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the tunnels lead to the
// leader.
func (s *Server) NeedLeaderElection() bool { return true }

// Start serves until the context ends. Then it refuses new requests, and ends those that go
// on after DrainTimeout.
func (s *Server) Start(ctx context.Context) error {
	logger := ctrl.LoggerFrom(ctx).WithName("gateway-frontend")
	inner := s.options.Listener
	if inner == nil {
		var err error
		if inner, err = listen(ctx, s.options.Address); err != nil {
			return fmt.Errorf("listening for users of workload clusters: %w", err)
		}
	}
	// Requests outlive the context.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	httpServer := s.httpServer(lasting, logger)
	failed := make(chan error, 2)
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.options.Certificate.Run(lasting); err != nil {
			failed <- fmt.Errorf("keeping the gateway's certificate up to date: %w", err)
		}
	})
	group.Go(func() {
		if err := httpServer.ServeTLS(s.limit(inner), "", ""); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving users of workload clusters: %w", err)
		}
	})
	logger.Info("Serving users of workload clusters", "address", inner.Addr().String())
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drain(lasting, end, httpServer)
	group.Wait()
	return err
}

// drain ends the server and waits for its handlers. A request that goes on after DrainTimeout
// is ended by its context, also if it was upgraded.
func (s *Server) drain(ctx context.Context, end context.CancelFunc, httpServer *http.Server) {
	s.router.drain()
	timer := s.options.Clock.AfterFunc(s.options.DrainTimeout, end)
	defer timer.Stop()
	if err := httpServer.Shutdown(ctx); err != nil {
		_ = httpServer.Close()
	}
	<-s.router.idle
	end()
}

// listen listens without a limit of the time in which data is acknowledged: a session whose
// output is paused stays open. Probes of the kernel find clients that are gone.
func listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 45 * time.Second, Interval: 5 * time.Second, Count: 3}}
	return config.Listen(ctx, "tcp", address) // says what and where
}

func (s *Server) limit(inner net.Listener) net.Listener {
	return &limited{
		Listener: inner, max: s.options.MaxConnections, maxOfSource: max(1, s.options.MaxConnections*3/4),
		metrics: s.metrics, sources: map[netip.Prefix]int{},
	}
}

func (s *Server) httpServer(ctx context.Context, logger logr.Logger) *http.Server {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: s.options.Certificate.Get,
		// Handlers verify it. Naming CAs here would keep clients from sending a certificate of
		// a CA that is new.
		ClientAuth: tls.RequestClientCert,
	}
	for _, change := range s.options.TLS {
		change(config)
	}
	// http.Server adds what Protocols permit.
	config.NextProtos = nil
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           s.router,
		Protocols:         protocols,
		TLSConfig:         config,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		// Any caller can cause its messages.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug),
	}
}
