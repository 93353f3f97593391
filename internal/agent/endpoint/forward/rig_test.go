package forward_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forward"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	own    = "192.0.2.1:6443"
	second = "192.0.2.2:6443"
	third  = "192.0.2.3:6443"
)

// patience bounds the wait for something that will happen at once, also on a busy machine.
const patience = time.Minute

// rig is a host with a forwarder, and the API servers of its cluster.
type rig struct {
	*forward.Forwarder
	t       *testing.T
	address string

	mu sync.Mutex
	// own is the address of the host's own API server.
	own string
	// servers are the API servers that accept connections.
	servers map[string]net.Listener
	dialled []string
	// silent are the addresses at which nothing answers.
	silent []string
	// sick are those whose /readyz fails.
	sick []string
	// ticks let pass the time until the next check; timeouts, until the end of a dial.
	ticks, timeouts chan struct{}
	checked         chan string
}

func newRig(t *testing.T, addresses ...string) *rig {
	t.Helper()
	r := &rig{t: t, servers: map[string]net.Listener{}, ticks: make(chan struct{}), timeouts: make(chan struct{}), checked: make(chan string, 100)}
	for _, address := range addresses {
		r.serve(address)
	}
	r.Forwarder = forward.New(forward.Options{Own: r.getOwn, Check: r.check, Dial: r.dial, Clock: r, Log: slog.New(slog.DiscardHandler)})
	listener := listen(t)
	r.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Accept(listener) })
	running.Go(func() { r.Watch(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		r.Close()
		running.Wait()
	})
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// serve starts an API server. It greets with its address, echoes what it gets, and at the
// end says so.
func (r *rig) serve(address string) {
	listener := listen(r.t)
	r.mu.Lock()
	r.servers[address] = listener
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			running.Go(func() {
				defer stop()
				defer func() { _ = conn.Close() }()
				if _, err := io.WriteString(conn, address+"\n"); err != nil {
					return
				}
				if _, err := io.Copy(conn, conn); err == nil {
					_, _ = io.WriteString(conn, "end")
				}
			})
		}
	})
	r.t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		running.Wait()
	})
}

// stop stops an API server: it refuses connections. Those that are open stay.
func (r *rig) stop(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.servers, address)
}

func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *rig) getOwn() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.own
}

func (r *rig) check(_ context.Context, backend string) error {
	r.mu.Lock()
	sick := slices.Contains(r.sick, backend)
	r.mu.Unlock()
	defer func() { r.checked <- backend }()
	if sick {
		return errors.New("/readyz says 500")
	}
	return nil
}

func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialled = append(r.dialled, address)
	server, silent := r.servers[address], slices.Contains(r.silent, address)
	r.mu.Unlock()
	switch {
	case silent:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case server == nil:
		return nil, errors.New(address + " refused")
	}
	return (&net.Dialer{}).DialContext(ctx, network, server.Addr().String())
}

func (r *rig) attempts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	dialled := r.dialled
	r.dialled = nil
	return dialled
}

// Now and Wait are the host's clock.
func (r *rig) Now() time.Time { return time.Now() }

func (r *rig) Wait(ctx context.Context, d time.Duration) error {
	allowed := r.ticks
	if d < 10*time.Second {
		allowed = r.timeouts
	}
	select {
	case <-allowed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tick lets ten seconds pass, and waits for the checks of so many backends.
func (r *rig) tick(checks int) (checked []string) {
	r.t.Helper()
	r.ticks <- struct{}{}
	for range checks {
		select {
		case backend := <-r.checked:
			checked = append(checked, backend)
		case <-time.After(patience):
			r.t.Fatal("timed out waiting for a check")
		}
	}
	slices.Sort(checked)
	return checked
}

// program is a connection of a program.
type program struct {
	*net.TCPConn
	t *testing.T
}

// connect connects to the forwarder, and returns the API server that answered; blank if
// the connection was closed.
func (r *rig) connect() (program, string) {
	r.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", r.address)
	if errors.Is(err, syscall.ECONNRESET) {
		return program{}, "" // the reset came before the end of the call
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	p := program{conn.(*net.TCPConn), r.t}
	if err := p.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return p, p.readLine()
}

// readLine returns a line without its end, or blank at the end of the connection.
func (p program) readLine() string {
	p.t.Helper()
	var line []byte
	var char [1]byte
	for {
		n, err := p.Read(char[:])
		switch {
		case n == 1 && char[0] == '\n':
			return string(line)
		case n == 1:
			line = append(line, char[0])
		case isTimeout(err):
			p.t.Fatal("timed out waiting for a line")
		case err != nil:
			return ""
		}
	}
}

// works reports whether the connection still carries data.
func (p program) works() bool {
	p.t.Helper()
	if _, err := io.WriteString(p, "hello\n"); err != nil {
		return false
	}
	return p.readLine() == "hello"
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
