package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forward"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/local"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
)

// localEndpoint is the endpoint that a host serves itself. Nobody else changes a virtual
// host's files, and its forwarder ends only when it is told to, so nothing is watched.
type localEndpoint struct{ *local.Endpoint }

// Run is agent.LocalEndpoint's.
func (localEndpoint) Run(context.Context, func()) {}

// newLocalEndpoint returns the endpoint for one process of the agent.
func (b *boot) newLocalEndpoint(l *agentProcess, log *slog.Logger) localEndpoint {
	h := b.host
	return localEndpoint{local.New(local.Options{
		Documents: l.mount, Root: h.root(), System: hostFiles{}, Process: &forwarding{boot: b, log: log},
		LocalAddresses: h.localAddresses, IsHost: netip.Addr.IsLoopback, Dial: h.network.dial,
		Clock: clock{skew: h.skew}, Log: log,
	})}
}

func (h *Host) localAddresses() []string { return []string{h.Address.String()} }

// hostFiles makes the folders of files, which a virtual host has only if it has files. It
// does not wait for the disk, which survives virtual power cuts anyway.
type hostFiles struct{ durable.OS }

// Create is durable.System's.
func (f hostFiles) Create(path string) (durable.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := f.OS.Create(path)
	if err != nil {
		return nil, err
	}
	return hostFile{file}, nil
}

// SyncDir is durable.System's.
func (hostFiles) SyncDir(string) error { return nil }

type hostFile struct{ durable.File }

// Sync is durable.File's.
func (hostFile) Sync() error { return nil }

// forwarding is local.Process: the forwarder of a boot, which outlives the agent.
type forwarding struct {
	boot *boot
	log  *slog.Logger
}

// runningForwarder is the forwarder that runs in a boot.
type runningForwarder struct {
	*forward.Forwarder

	config forwarder.Config
	end    context.CancelFunc
	// over is closed when nothing of it is left.
	over chan struct{}
}

// Ensure is local.Process's.
func (p *forwarding) Ensure(ctx context.Context, config forwarder.Config) error {
	running := p.current()
	if running != nil && (running.config.Host != config.Host || running.config.Port != config.Port) {
		if err := p.Stop(ctx); err != nil {
			return err
		}
		running = nil
	}
	if running == nil {
		var err error
		if running, err = p.start(config); err != nil { //nolint:contextcheck // it outlives the agent, and ends with the boot
			return err
		}
	}
	running.SetBackends(config.Backends)
	return nil
}

// start starts the forwarder.
func (p *forwarding) start(config forwarder.Config) (*runningForwarder, error) {
	b, h := p.boot, p.boot.host
	listener, err := h.network.listen(config.Port)
	if err != nil {
		return nil, err
	}
	own := clock{skew: h.skew}
	prober := probe.New(probe.Options{Root: h.root(), LocalAddresses: h.localAddresses, Clock: own, Dial: h.network.dialAsProgram})
	ctx, end := context.WithCancel(b.ctx)
	running := &runningForwarder{config: config, end: end, over: make(chan struct{}), Forwarder: forward.New(forward.Options{
		Own:   func() string { return apiserver.Own(h.root(), h.localAddresses()) },
		Check: func(ctx context.Context, backend string) error { return prober.Ready(ctx, backend, config.Host) },
		Dial:  h.network.dialAsProgram,
		Confirm: func(client net.Conn) bool {
			_, confirm := client.(ofAgent)
			return confirm
		},
		Clock: own, Log: p.log,
	})}
	b.mu.Lock()
	b.forwarder = running
	b.mu.Unlock()
	b.running.Go(func() { running.Accept(listener) })
	b.running.Go(func() {
		defer close(running.over)
		running.Watch(ctx)
		_ = listener.Close()
		running.Close()
	})
	return running, nil
}

func (p *forwarding) current() *runningForwarder {
	p.boot.mu.Lock()
	defer p.boot.mu.Unlock()
	return p.boot.forwarder
}

// Stop is local.Process's.
func (p *forwarding) Stop(ctx context.Context) error {
	running := p.current()
	if running == nil {
		return nil
	}
	running.end()
	select {
	case <-running.over:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.boot.mu.Lock()
	p.boot.forwarder = nil
	p.boot.mu.Unlock()
	return nil
}

// Running is local.Process's.
func (p *forwarding) Running() bool { return p.current() != nil }

// ofAgent is a connection of the agent, which waits for forward.Accepted.
type ofAgent struct{ *net.UnixConn }

// Dial is local.Process's.
func (p *forwarding) Dial(ctx context.Context, config forwarder.Config) (net.Conn, error) {
	at, err := netip.ParseAddrPort(config.Address())
	if err != nil {
		return nil, err
	}
	listener := p.boot.host.network.own(at)
	if listener == nil {
		return nil, fmt.Errorf("connecting to the endpoint's forwarder: %w", syscall.ECONNREFUSED)
	}
	conn, err := listener.connect(ctx.Done(), func(far *net.UnixConn) net.Conn { return ofAgent{far} })
	if err != nil {
		return nil, fmt.Errorf("connecting to the endpoint's forwarder: %w", err)
	}
	if err := forward.AwaitAccepted(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("waiting until an API server of the cluster accepts the connection: %w", err), conn.Close())
	}
	return conn, nil
}

// Watch is local.Process's. Nobody calls it, see localEndpoint.
func (p *forwarding) Watch(ctx context.Context, watching func()) error {
	watching()
	<-ctx.Done()
	return nil
}
