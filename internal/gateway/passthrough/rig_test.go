package passthrough

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tcp"
)

const patience = time.Minute

var (
	errNoRoute   = errors.New("no cluster has this name")
	errForbidden = errors.New("the host may not")
	errRefused   = errors.New("the API server refuses")
	errFiltered  = errors.New("no answer")
	errAbsent    = errors.New("no host has a tunnel")
)

// routerFunc is a Router.
type routerFunc func(ctx context.Context, serverName string) (net.Conn, error)

func (f routerFunc) Dial(ctx context.Context, serverName string) (net.Conn, error) {
	return f(ctx, serverName)
}

// dialTo routes every name to an address.
func dialTo(address string) Router {
	return routerFunc(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
}

// rig is a running Server.
type rig struct {
	*WithT
	*Server
	clock   *clocktesting.FakeClock
	address string
	stop    context.CancelFunc
	// stopped gets the result of Start. done is closed when Start has returned.
	stopped chan error
	done    chan struct{}
	// lines counts what is logged by default.
	lines atomic.Int32
}

// start starts a Server. At the end of the test it stops, and nothing of it is left.
func start(t *testing.T, router Router, change ...func(*Options)) *rig {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	inner, err := tcp.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		WithT: NewWithT(t), clock: clocktesting.NewFakeClock(time.Now()), address: inner.Addr().String(),
		stopped: make(chan error, 1), done: make(chan struct{}),
	}
	o := Options{
		Router: router, Metrics: prometheus.NewRegistry(), Clock: r.clock, Listener: inner,
		DialErrors: map[string]error{
			"no_route": errNoRoute, "forbidden": errForbidden, "refused": errRefused, "filtered": errFiltered, "absent": errAbsent,
		},
	}
	for _, f := range change {
		f(&o)
	}
	if r.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	logger := funcr.New(func(string, string) { r.lines.Add(1) }, funcr.Options{})
	ctx, cancel := context.WithCancel(ctrl.LoggerInto(context.Background(), logger))
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.stopped <- r.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		r.Eventually(func() bool {
			select {
			case <-r.done:
				return true
			default:
				r.clock.Step(r.options.DrainTimeout) // it may begin only now
				return false
			}
		}).WithTimeout(patience).Should(BeTrue())
		r.Eventually(func() error { return goleak.Find(leaks) }).WithTimeout(patience).Should(Succeed())
	})
	return r
}

// dial opens a connection. The local address may be given.
func (r *rig) dial(t *testing.T, from ...string) *net.TCPConn {
	t.Helper()
	conn, err := r.tryDial(t, from...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (r *rig) tryDial(t *testing.T, from ...string) (*net.TCPConn, error) {
	t.Helper()
	dialer := &net.Dialer{Timeout: patience}
	if len(from) > 0 {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from[0])}
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", r.address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	r.Expect(conn.SetDeadline(time.Now().Add(patience))).To(Succeed())
	return conn.(*net.TCPConn), nil
}

// send opens a connection and sends bytes.
func (r *rig) send(t *testing.T, what []byte, from ...string) *net.TCPConn {
	t.Helper()
	conn := r.dial(t, from...)
	_, err := conn.Write(what)
	r.Expect(err).NotTo(HaveOccurred())
	return conn
}

// step advances the clock and waits until all calls that are due were made.
func (r *rig) step(d time.Duration) {
	r.Eventually(r.timers.Waits).WithTimeout(patience).Should(BeTrue())
	r.clock.Step(d)
	r.Eventually(r.timers.Waits).WithTimeout(patience).Should(BeTrue())
}

// result returns how many connections had an outcome.
func (r *rig) result(o outcome) int {
	return int(testutil.ToFloat64(r.metrics.results.WithLabelValues(string(o))))
}

func (r *rig) waitForResults(o outcome, n int) {
	r.Eventually(r.result).WithArguments(o).WithTimeout(patience).Should(Equal(n))
}

func (r *rig) waitForOpen(unrouted, routed int) {
	r.Eventually(func() [2]float64 {
		return [2]float64{testutil.ToFloat64(r.metrics.unrouted), testutil.ToFloat64(r.metrics.routed)}
	}).WithTimeout(patience).Should(Equal([2]float64{float64(unrouted), float64(routed)}))
}

// expectReset checks that a connection is reset before a byte was sent.
func (r *rig) expectReset(conn net.Conn) {
	n, err := conn.Read(make([]byte, 1))
	r.Expect(n).To(BeZero())
	r.Expect(err).To(MatchError(syscall.ECONNRESET))
}

// expectNoPlace checks that a new connection is reset at once. Its caller may see the reset
// before the end of its own connect.
func (r *rig) expectNoPlace(t *testing.T, from string) {
	t.Helper()
	conn, err := r.tryDial(t, from)
	if err != nil {
		r.Expect(err).To(MatchError(syscall.ECONNRESET))
		return
	}
	r.expectReset(conn)
}

// expectEcho checks that bytes come back, through a connection that has sent hello.
func (r *rig) expectEcho(conn net.Conn, text string) {
	_, err := io.WriteString(conn, text)
	r.Expect(err).NotTo(HaveOccurred())
	back := make([]byte, len(text))
	_, err = io.ReadFull(conn, back)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(string(back)).To(Equal(text))
}

// serve accepts TCP connections until the test ends, and waits for their handlers. A
// handler has to return when its connection ends.
func serve(t *testing.T, handle func(*net.TCPConn)) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				handle(conn.(*net.TCPConn))
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

// echo reads a ClientHello as long as hello, and sends back what follows.
func echo(hello []byte) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		got := make([]byte, len(hello))
		if _, err := io.ReadFull(conn, got); err == nil && bytes.Equal(got, hello) {
			_, _ = io.Copy(conn, conn)
		}
	}
}
