package local_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/local"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	name   = "shop-endpoint.tenant.svc.cluster.local"
	served = name + ":16443"
	line   = "127.0.0.1 " + name + " # elemental-agent: the cluster's endpoint, which this host forwards\n"
	first  = "127.0.0.1 localhost\n10.0.0.7 host-7\n"
)

// box is a host in a directory. It is the forwarder's process as well.
type box struct {
	t    *testing.T
	root string

	mu sync.Mutex
	// ensured are the configurations that the process was ensured with.
	ensured []forwarder.Config
	running bool
	broken  error
	// kill ends the process.
	kill chan struct{}
	// ticks let pass a wait of the clock that is longer than a second.
	ticks   chan struct{}
	dialled string
	local   []string
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, root: t.TempDir(), kill: make(chan struct{}), ticks: make(chan struct{}), local: []string{"10.0.0.7"}}
	b.write("/etc/hosts", first)
	return b
}

// endpoint returns the Endpoint of an agent that has just started.
func (b *box) endpoint() *local.Endpoint {
	b.t.Helper()
	documents, err := state.OpenDir(filepath.Join(b.root, "state"), durable.OS{})
	if err != nil {
		b.t.Fatal(err)
	}
	return local.New(local.Options{
		Documents: documents, Root: b.root, Process: b, LocalAddresses: func() []string { return b.local }, Dial: b.dial, Clock: b,
		Log: slog.New(slog.DiscardHandler),
	})
}

func (b *box) Ensure(_ context.Context, config forwarder.Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken != nil {
		return b.broken
	}
	if _, err := os.Stat(filepath.Join(b.root, "state", forwarder.Document)); err != nil {
		return err
	}
	b.running, b.ensured = true, append(b.ensured, config)
	return nil
}

func (b *box) Stop(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = false
	return b.broken
}

func (b *box) Running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

func (b *box) Watch(ctx context.Context, watching func()) error {
	watching()
	select {
	case <-b.kill:
		_ = b.Stop(ctx)
	case <-ctx.Done():
	}
	return nil
}

func (b *box) dial(_ context.Context, _, address string) (net.Conn, error) {
	b.dialled = address
	return nil, errors.New("nobody is there")
}

// Dial is the forwarder's.
func (b *box) Dial(_ context.Context, config forwarder.Config) (net.Conn, error) {
	b.dialled = "forwarder " + config.Address()
	return nil, errors.New("no API server accepts")
}

// Now and Wait are the clock.
func (b *box) Now() time.Time { return time.Now() }

func (b *box) Wait(ctx context.Context, d time.Duration) error {
	if d <= time.Second {
		return ctx.Err()
	}
	select {
	case <-b.ticks:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *box) write(path, content string) {
	b.t.Helper()
	path = filepath.Join(b.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) hosts() string {
	text, err := os.ReadFile(filepath.Join(b.root, "/etc/hosts"))
	if err != nil {
		return ""
	}
	return string(text)
}

func (b *box) last() forwarder.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ensured) == 0 {
		return forwarder.Config{}
	}
	return b.ensured[len(b.ensured)-1]
}

func endpoint(backends ...string) protocol.Endpoint {
	return protocol.Endpoint{Host: name, Port: 16443, Local: &protocol.LocalEndpoint{Backends: backends}}
}

// apply applies an endpoint that has to be served then.
func (b *box) apply(backends ...string) {
	b.t.Helper()
	if got, err := b.endpoint().Apply(b.t.Context(), endpoint(backends...)); err != nil || got != served {
		b.t.Fatalf("got %q, %v", got, err)
	}
}

func (b *box) leftovers() string {
	b.t.Helper()
	found, err := b.endpoint().Leftovers()
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(found, ", ")
}
