package server_test

import (
	"context"
	"crypto/x509"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
)

// network is a network in memory. It is also the listener of its only server.
type network struct {
	backlog chan net.Conn
	closed  chan struct{}
	close   sync.Once
}

func newNetwork() *network {
	const backlog = 128
	return &network{backlog: make(chan net.Conn, backlog), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.backlog:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *network) Close() error {
	n.close.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9444} }

// dialer returns a function that connects to the server from that address.
func (n *network) dialer(from string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case n.backlog <- &pipeEnd{Conn: theirs, local: n.Addr(), remote: &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}:
			return ours, nil
		case <-n.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// pipeEnd is a connection that has addresses.
type pipeEnd struct {
	net.Conn
	local, remote net.Addr
}

func (e *pipeEnd) LocalAddr() net.Addr  { return e.local }
func (e *pipeEnd) RemoteAddr() net.Addr { return e.remote }

// directly is an API server in memory whose Get reads past the cache.
type directly struct{ *controllertest.Memory }

// Get implements client.Reader.
func (d directly) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return d.Live().Get(ctx, key, o, opts...)
}

// startInBubble is start in a bubble of synctest, with an API server and a network in memory.
// The API has the time of the bubble, which passes only while everything else waits. So tests
// know exactly when something happens, and need not let real time pass.
//
// The clock of the harness stands still.
func startInBubble(t *testing.T, change ...func(*server.Options)) *harness {
	t.Helper()
	memory := controllertest.NewMemory(t, env.Scheme, cache.TransformStripManagedFields(), index.Register)
	h := &harness{
		tb: t, namespace: "default", admin: directly{memory}, cached: memory, clock: clocktesting.NewFakeClock(time.Now()),
		writes: &writeRecorder{}, logs: &logBuffer{}, metrics: prometheus.NewRegistry(), recorder: events.NewFakeRecorder(10000),
		handled: newHandledEvents(memory.Cache), network: newNetwork(), roots: x509.NewCertPool(),
	}
	h.url = "https://" + h.network.Addr().String()
	ca := authority.New(memory.Live(), memory, h.namespace, clock.RealClock{})
	options := server.Options{
		Client: memory, APIReader: memory.Live(), Informers: h.handled, Authority: ca,
		Recorder: h.recorder, Metrics: h.metrics, Clock: clock.RealClock{},
		Listener: h.network, URL: h.url, Namespace: h.namespace,
	}
	for _, f := range change {
		f(&options)
	}
	var err error
	h.server, err = server.New(options)
	h.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.server.Start(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		h.must(<-ended)
	})
	t.Cleanup(h.stop)
	bundle, err := ca.Bundle(t.Context())
	h.must(err)
	h.roots.AppendCertsFromPEM([]byte(bundle))
	return h
}
