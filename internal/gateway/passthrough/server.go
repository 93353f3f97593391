package passthrough

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

// Server accepts TLS connections and routes them. It implements manager.Runnable and can be
// started once.
type Server struct {
	options Options
	errors  dialErrors
	timers  *timer.Queue
	metrics *metrics
	table   *table
	relay   *relay
	// group has the goroutines of all connections.
	group sync.WaitGroup
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// New returns a Server whose metrics are registered.
func New(o Options) (*Server, error) {
	o = o.withDefaults()
	if o.HelloTimeout > o.RefuseAfter {
		return nil, fmt.Errorf("connections are refused after %s, before the end of the time for a ClientHello, %s", o.RefuseAfter, o.HelloTimeout)
	}
	classes, err := newDialErrors(o.DialErrors)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics, classes)
	if err != nil {
		return nil, err
	}
	timers := timer.NewQueue(o.Clock)
	return &Server{
		options: o, errors: classes, timers: timers, metrics: m, relay: newRelay(m),
		table: &table{
			clock: o.Clock, timers: timers, helloTimeout: o.HelloTimeout, refuseAfter: o.RefuseAfter, metrics: m,
			limits: limits{
				all: o.MaxConnections, ofSource: max(1, o.MaxConnections*3/4),
				unrouted: o.MaxUnrouted, unroutedOfSource: max(1, o.MaxUnrouted/2),
			},
			empty: make(chan struct{}), open: map[*conn]struct{}{}, sources: map[netip.Prefix]*source{},
		},
	}, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: the tunnels lead to the
// leader.
func (s *Server) NeedLeaderElection() bool { return true }

// Start serves until the context ends. Then it closes the connections that are not routed,
// and after DrainTimeout all others.
func (s *Server) Start(ctx context.Context) error {
	logger := ctrl.LoggerFrom(ctx).WithName("gateway-passthrough")
	inner := s.options.Listener
	if inner == nil {
		var err error
		if inner, err = tcp.Listen(ctx, s.options.Address); err != nil {
			return fmt.Errorf("listening for clients of workload clusters: %w", err)
		}
	}
	// Routed connections outlive the context.
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timers sync.WaitGroup
	timers.Go(func() { s.timers.Run(lasting) })
	defer timers.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = inner.Close() })
	defer stop()
	logger.Info("Routing clients of workload clusters", "address", inner.Addr().String())
	err := s.accept(ctx, lasting, inner, logger)
	_ = inner.Close()
	s.table.drain()
	expiry := s.timers.At(s.options.Clock.Now().Add(s.options.DrainTimeout), s.table.closeAll)
	<-s.table.empty
	s.timers.Cancel(expiry)
	s.group.Wait()
	return err
}

// accept accepts connections until the context ends or the listener fails.
func (s *Server) accept(ctx, lasting context.Context, inner net.Listener, logger logr.Logger) error {
	const first, last = 5 * time.Millisecond, time.Second
	pause := first
	for {
		accepted, err := inner.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = accepted.Close()
			}
			return nil
		}
		temporary, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err)
		switch {
		case err == nil:
			pause = first
			s.begin(lasting, accepted, logger)
		case ok && temporary.Temporary():
			// For example, too many files are open.
			logger.Error(err, "Connections can't be accepted, trying again")
			s.pause(ctx, pause)
			pause = min(2*pause, last)
		default:
			return fmt.Errorf("accepting a connection: %w", err)
		}
	}
}

func (s *Server) pause(ctx context.Context, d time.Duration) {
	t := s.options.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
	case <-ctx.Done():
	}
}

// begin routes a connection in the background, unless a limit is reached.
func (s *Server) begin(ctx context.Context, accepted net.Conn, logger logr.Logger) {
	ctx, cancel := context.WithCancelCause(ctx)
	c, err := s.table.add(accepted, cancel)
	if err != nil {
		cancel(err)
		s.metrics.count(outcomeOf(err))
		logger.V(4).Info("Connection refused", "source", accepted.RemoteAddr().String(), "reason", err.Error())
		(&conn{Conn: accepted}).hangUp()
		return
	}
	s.group.Go(func() {
		name, err := s.route(ctx, c, logger)
		s.metrics.count(outcomeOf(err))
		if err != nil {
			// Any caller can cause this, so it is not logged by default.
			logger.V(4).Info("Connection not routed", "source", c.RemoteAddr().String(), "serverName", name, "reason", err.Error())
		}
	})
}

// route reads the ClientHello of a connection and begins to copy, or returns why it does
// not. Then the connection stays open until its time is over.
//
// The goroutine ends with the routing, and others copy: a handshake needs a deep stack,
// which a goroutine keeps.
func (s *Server) route(ctx context.Context, c *conn, logger logr.Logger) (name string, err error) {
	name, hello, err := readHello(ctx, c.Conn)
	s.table.read(c)
	if err != nil {
		if errors.Is(err, net.ErrClosed) {
			return "", context.Cause(ctx)
		}
		if outcomeOf(err) == incomplete {
			s.table.close(c, incomplete) // no name was looked up, so this shows nothing
		}
		return "", err
	}
	name = strings.ToLower(name)
	upstream, err := s.options.Router.Dial(ctx, name)
	if err != nil {
		return name, s.errors.refuse(ctx, err)
	}
	if !s.table.route(c, upstream) {
		_ = upstream.Close()
		return name, context.Cause(ctx)
	}
	s.relay.start(c.Conn, upstream, hello, s.group.Go, func(err error) {
		if err != nil {
			logger.V(4).Info("Connection ended", "source", c.RemoteAddr().String(), "serverName", name, "reason", err.Error())
		}
		s.table.close(c, routed)
	})
	return name, nil
}
