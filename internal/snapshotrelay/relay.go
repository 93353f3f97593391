package snapshotrelay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// limit bounds the connections at a time. Each has two buffers of bufferBytes, and those of TLS.
	limit       = 16
	bufferBytes = 32 << 10
	dialTimeout = 10 * time.Second
	// dialLimit bounds those of them that one storage has not accepted, so that one that does not answer
	// leaves room for others.
	dialLimit = limit / 4
	// idle is longer than a storage may take for its answer after the last byte of a snapshot.
	idle = 6 * time.Minute
	// longest is as long as an agent takes at most for one attempt.
	longest = 6 * time.Hour
	// maxBytes bounds each direction: a snapshot, and what TLS and HTTP add.
	maxBytes = protocol.MaxUploadBytes + protocol.MaxUploadBytes/64 + 1<<20
)

// ErrBusy is returned while as many connections as possible are carried.
var ErrBusy = errors.New("as many connections to storages as possible are carried")

// Relay connects hosts with storages, each host once at a time. It is safe for concurrent use.
type Relay struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	idle    time.Duration
	running prometheus.Gauge

	mu sync.Mutex
	of map[types.NamespacedName]*Connection
	// all counts connections, also those that a newer one of their host ends.
	all int
	// dialling counts those that a storage has not accepted, by its address.
	dialling map[string]int
}

// New returns a Relay whose metrics are registered.
func New(registerer prometheus.Registerer) (*Relay, error) {
	r := &Relay{
		dial: (&net.Dialer{Timeout: dialTimeout}).DialContext, idle: idle,
		of: map[types.NamespacedName]*Connection{}, dialling: map[string]int{},
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "elemental", Subsystem: "agent_api", Name: "snapshot_relays",
			Help: "Connections of hosts to storages of snapshots that the manager carries.",
		}),
	}
	if err := registerer.Register(r.running); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return r, nil
}

// Connection is a connection to a storage. Either Carry or Close must be called.
type Connection struct {
	relay   *Relay
	host    types.NamespacedName
	storage net.Conn
	// ended is closed when a newer connection of the host takes this one's place.
	ended chan struct{}
}

// Open connects to a storage for a host, and ends the host's former connection, whose host may have lost
// power. The address must have been checked.
func (r *Relay) Open(ctx context.Context, host types.NamespacedName, address string) (*Connection, error) {
	c := &Connection{relay: r, host: host, ended: make(chan struct{})}
	if !r.begin(c, address) {
		return nil, ErrBusy
	}
	var err error
	c.storage, err = r.connect(ctx, c, address)
	r.dialled(address)
	if err != nil {
		r.end(c)
		return nil, fmt.Errorf("connecting to the storage %s: %w", address, err)
	}
	return c, nil
}

// connect ends early when a newer connection of the host takes the place of this one.
func (r *Relay) connect(ctx context.Context, c *Connection, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return r.dial(ctx, "tcp", address)
}

func (r *Relay) begin(c *Connection, address string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= limit || r.dialling[address] >= dialLimit {
		return false
	}
	if former := r.of[c.host]; former != nil {
		close(former.ended)
	}
	r.of[c.host] = c
	r.all++
	r.dialling[address]++
	r.running.Set(float64(r.all))
	return true
}

// dialled ends what begin has counted for the address.
func (r *Relay) dialled(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dialling[address]--; r.dialling[address] == 0 {
		delete(r.dialling, address)
	}
}

func (r *Relay) end(c *Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[c.host] == c {
		delete(r.of, c.host)
	}
	r.all--
	r.running.Set(float64(r.all))
}

// Close ends the connection to the storage.
func (c *Connection) Close() {
	c.relay.end(c)
	_ = c.storage.Close()
}

// Carry carries everything between the host and the storage until one of them ends the connection, neither
// sends anything for some minutes, or ctx ends. Then it closes both.
func (c *Connection) Carry(ctx context.Context, host net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	extend := func() bool {
		deadline := time.Now().Add(c.relay.idle)
		return host.SetDeadline(deadline) == nil && c.storage.SetDeadline(deadline) == nil
	}
	var both sync.WaitGroup
	if extend() {
		for from, to := range map[net.Conn]net.Conn{host: c.storage, c.storage: host} {
			both.Go(func() {
				defer cancel()
				pump(to, from, extend)
			})
		}
		select {
		case <-ctx.Done():
		case <-c.ended:
		}
	}
	_ = host.Close()
	c.Close()
	both.Wait()
}

// pump copies until an end, an error, or too many bytes. extend puts the deadline of both sides off.
func pump(to, from net.Conn, extend func() bool) {
	buffer := make([]byte, bufferBytes)
	for copied := int64(0); copied < maxBytes; {
		n, err := from.Read(buffer)
		if n > 0 {
			if !extend() {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		copied += int64(n)
	}
}
