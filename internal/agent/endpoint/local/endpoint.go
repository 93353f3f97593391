package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/forwarder"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Process is the forwarder's process; see forwarder.Manager.
type Process interface {
	Ensure(ctx context.Context, config forwarder.Config) error
	Stop(ctx context.Context) error
	Running() bool
	Watch(ctx context.Context, watching func()) error
	Dial(ctx context.Context, config forwarder.Config) (net.Conn, error)
}

// Options configure an Endpoint.
type Options struct {
	// Documents are the agent's documents, in the state directory of the Process.
	Documents state.Files
	// Root replaces "/"; blank means this machine.
	Root string
	// System writes files; nil means durable.OS.
	System  durable.System
	Process Process
	// LocalAddresses returns the host's addresses, the preferred one first.
	LocalAddresses func() []string
	// IsHost reports whether another host can have an address. Nil means netip.Addr.IsGlobalUnicast:
	// a loopback address would lead to the forwarder itself.
	IsHost func(netip.Addr) bool
	// Dial connects to the host's own API server for the tunnel.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Clock retry.Clock
	Log   *slog.Logger
}

// Endpoint serves the endpoint. Use New. Its methods may be called concurrently.
type Endpoint struct {
	o Options
	// changed is raised when there is something else to keep.
	changed chan struct{}
	mu      sync.Mutex
}

// New returns an Endpoint.
func New(o Options) *Endpoint {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.System == nil {
		o.System = durable.OS{}
	}
	if o.IsHost == nil {
		o.IsHost = netip.Addr.IsGlobalUnicast
	}
	return &Endpoint{o: o, changed: make(chan struct{}, 1)}
}

func (e *Endpoint) document() state.Document[forwarder.Config] {
	return state.Document[forwarder.Config]{Files: e.o.Documents, Name: forwarder.Document}
}

// Apply serves an endpoint that has Local, from now on. It returns the endpoint, host:port,
// if the host resolves its name and the forwarder listens. It may be repeated and changes
// only what differs.
func (e *Endpoint) Apply(ctx context.Context, endpoint protocol.Endpoint) (served string, err error) {
	wanted, err := check(endpoint, e.o.IsHost)
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	recorded, err := e.document().Load()
	if err != nil {
		return "", err
	}
	if recorded.Host != wanted.Host || recorded.Port != wanted.Port || !slices.Equal(recorded.Backends, wanted.Backends) {
		if err := e.document().Save(wanted); err != nil {
			return "", err
		}
		select {
		case e.changed <- struct{}{}:
		default:
		}
	}
	return e.serve(ctx, wanted)
}

// Keep serves the endpoint that was applied last. It returns a blank endpoint without an
// error if none was applied.
func (e *Endpoint) Keep(ctx context.Context) (served string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	recorded, err := e.document().Load()
	if err != nil || recorded.Host == "" {
		return "", err
	}
	return e.serve(ctx, recorded)
}

// serve does not keep the forwarder from its work if the line can't be written, and vice
// versa.
func (e *Endpoint) serve(ctx context.Context, config forwarder.Config) (string, error) {
	hosts := e.hosts()
	if err := errors.Join(e.o.Process.Ensure(ctx, config), hosts.set(config.Host)); err != nil {
		return "", err
	}
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), nil
}

// Remove removes the line and ends the forwarder. It may be repeated.
func (e *Endpoint) Remove(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	hosts := e.hosts()
	err := hosts.set("")
	if err == nil {
		// The forwarder goes on without its document for some seconds only, so that it ends
		// even if it can't be asked.
		err = e.o.Documents.Remove(forwarder.Document)
	}
	if err := errors.Join(err, e.o.Process.Stop(ctx)); err != nil {
		return fmt.Errorf("removing the local endpoint: %w", err)
	}
	return nil
}

// Leftovers lists what Remove would remove, as protocol.Cleanliness reports it.
func (e *Endpoint) Leftovers() ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []string
	hosts := e.hosts()
	names, err := hosts.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		found = append(found, "name "+name+" in "+hostsFile)
	}
	if e.o.Process.Running() {
		found = append(found, "process elemental-agent endpoint")
	}
	recorded, err := e.document().Load()
	if err != nil {
		return nil, err
	}
	if recorded.Host != "" && len(found) == 0 {
		found = append(found, "endpoint "+recorded.Host)
	}
	return found, nil
}

func (e *Endpoint) hosts() hosts { return hosts{root: e.o.Root, system: e.o.System, log: e.o.Log} }
