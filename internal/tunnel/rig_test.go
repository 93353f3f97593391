package tunnel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

const apiServer = "kube-apiserver"

// buffer is one direction of a link. Writes never block.
type buffer struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    bytes.Buffer
	err     error
	// cut drops what is written, as a dead network does.
	cut     bool
	written int
	// requests counts writes that begin with a HEADERS frame.
	requests int
	deadline deadline
}

func newBuffer() *buffer {
	b := &buffer{}
	b.changed = sync.NewCond(&b.mu)
	return b
}

func (b *buffer) read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.data.Len() == 0 && b.err == nil && !b.deadline.passed {
		b.changed.Wait()
	}
	switch {
	case b.deadline.passed:
		return 0, os.ErrDeadlineExceeded
	case b.data.Len() > 0:
		return b.data.Read(p)
	default:
		return 0, b.err
	}
}

func (b *buffer) write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, syscall.EPIPE
	}
	b.written += len(p)
	if len(p) > frameHeaderLength && p[3] == 1 {
		b.requests++
	}
	if !b.cut {
		b.data.Write(p)
		b.changed.Broadcast()
	}
	return len(p), nil
}

// send ends a direction from the writer's end.
func (b *buffer) send(err error) {
	b.mu.Lock()
	lost := b.cut
	b.mu.Unlock()
	if !lost {
		b.end(err)
	}
}

func (b *buffer) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		b.changed.Broadcast()
	}
}

func (b *buffer) setDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline.set(t, b.changed)
}

func (b *buffer) count() (written, requests int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.written, b.requests
}

// end is one end of a connection in memory.
type end struct{ in, out *buffer }

// link returns both ends.
func link() (*end, *end) {
	there, back := newBuffer(), newBuffer()
	return &end{in: back, out: there}, &end{in: there, out: back}
}

func (e *end) Read(p []byte) (int, error)  { return e.in.read(p) }
func (e *end) Write(p []byte) (int, error) { return e.out.write(p) }

func (e *end) Close() error {
	e.in.end(net.ErrClosed)
	e.out.send(io.EOF)
	return nil
}

func (e *end) CloseWrite() error {
	e.out.send(io.EOF)
	return nil
}

// reset ends the connection as a TCP reset does.
func (e *end) reset() {
	e.in.end(net.ErrClosed)
	e.out.send(syscall.ECONNRESET)
}

// cut loses everything in both directions from now on.
func (e *end) cut() {
	for _, b := range []*buffer{e.in, e.out} {
		b.mu.Lock()
		b.cut = true
		b.mu.Unlock()
	}
}

func (*end) LocalAddr() net.Addr                 { return address("memory") }
func (*end) RemoteAddr() net.Addr                { return address("memory") }
func (e *end) SetDeadline(t time.Time) error     { return e.SetReadDeadline(t) }
func (*end) SetWriteDeadline(time.Time) error    { return nil }
func (e *end) SetReadDeadline(t time.Time) error { e.in.setDeadline(t); return nil }

// rig is a tunnel in memory, whose targets are handed to the test.
type rig struct {
	t        *testing.T
	session  *Session
	manager  *end
	accepted chan *end
	cancel   context.CancelFunc
	served   chan error
}

func (r *rig) dial(_ context.Context, target string) (net.Conn, error) {
	if target != apiServer {
		return nil, ErrForbidden
	}
	near, far := link()
	r.accepted <- far
	return near, nil
}

// start starts a tunnel. A nil dialer is the rig's.
func start(t *testing.T, dial Dialer) *rig {
	t.Helper()
	r := &rig{t: t, accepted: make(chan *end, maxStreams+1), served: make(chan error, 1)}
	if dial == nil {
		dial = r.dial
	}
	var agent *end
	r.manager, agent = link()
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { r.served <- Serve(ctx, agent, dial) }()
	session, err := NewSession(t.Context(), r.manager)
	if err != nil {
		t.Fatal(err)
	}
	r.session = session
	return r
}

// stop ends the tunnel and waits for its agent.
func (r *rig) stop() {
	r.session.Close(nil)
	r.cancel()
	if err := <-r.served; err == nil {
		r.t.Error("the agent did not say why it has ended")
	}
}

// open returns both ends of a stream.
func (r *rig) open() (net.Conn, *end) {
	r.t.Helper()
	conn, err := r.session.Dial(r.t.Context(), apiServer)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn, <-r.accepted
}

// exchange sends text from one end to the other.
func exchange(t *testing.T, from io.Writer, to io.Reader, text string) {
	t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v, want %q", got, err, text)
	}
}

// want fails the test unless an error is each of some.
func want(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("got error %v, want %v", err, target)
		}
	}
}

// serveHTTP is an agent with a handler of the test's own.
func serveHTTP(conn net.Conn, config *http.HTTP2Config, handler http.HandlerFunc) {
	l := &listener{conn: &wire{Conn: conn}, closed: make(chan struct{})}
	server := &http.Server{
		Handler: handler, Protocols: protocols(), HTTP2: config, ReadHeaderTimeout: setupTimeout,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				_ = l.Close()
			}
		},
	}
	_ = server.Serve(l)
}
