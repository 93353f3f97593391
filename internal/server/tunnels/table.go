package tunnels

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// Reasons for which the table ends tunnels.
var (
	// ErrReplaced says that the host has made a newer tunnel.
	ErrReplaced = errors.New("host has a newer tunnel")
	// ErrDraining says that the manager ends.
	ErrDraining = errors.New("manager is shutting down")
)

// Table holds the tunnels of hosts in memory: one for each host, the newest. It is safe
// for concurrent use.
type Table struct {
	clock   clock.PassiveClock
	metrics *metrics
	// changed is called after a host's tunnel was added or has ended.
	changed func(host types.NamespacedName)

	mu       sync.Mutex
	hosts    map[types.NamespacedName]*entry
	setups   map[types.NamespacedName]*setup
	settling sync.WaitGroup
	draining bool
}

// entry is what the table knows of a host.
type entry struct {
	// session is nil while the host has no tunnel.
	session *tunnel.Session
	holder  Holder
	// since is when the host got its tunnel, or lost it, or was expected to open one.
	since time.Time
	ended error
}

// setup is a tunnel that does not answer yet.
type setup struct {
	cancel context.CancelCauseFunc
}

// Holder is who has opened a tunnel, and for what.
type Holder struct {
	// KeyFingerprint is that of the key of the tunnel's connection.
	KeyFingerprint string
	// Boot is the boot of the host that has opened the tunnel.
	Boot string
	// ClaimID is the claim of the host then.
	ClaimID string
}

// State is the state of a host's tunnel.
type State struct {
	// Connected says that the host has a tunnel.
	Connected bool
	// Holder is who has opened it, or had opened the last one.
	Holder Holder
	// Since is when the state began.
	Since time.Time
	// Ended is why the last tunnel has ended; nil if there was none.
	Ended error
}

// NewTable returns an empty table. It calls changed after each change of a host's state,
// which must return quickly.
func NewTable(now clock.PassiveClock, changed func(host types.NamespacedName)) *Table {
	return &Table{
		clock: now, metrics: newMetrics(), changed: changed,
		hosts: map[types.NamespacedName]*entry{}, setups: map[types.NamespacedName]*setup{},
	}
}

// Open sets up a tunnel on a connection that a host has upgraded, which it owns, and adds
// it. A host has one set-up at a time: a newer one ends the former. The context bounds the
// set-up, and tunnel.NewSession does.
func (t *Table) Open(ctx context.Context, host types.NamespacedName, holder Holder, conn net.Conn) (*tunnel.Session, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	own := &setup{cancel: cancel}
	if !t.begin(host, own) {
		_ = conn.Close()
		return nil, ErrDraining
	}
	defer t.finish(host, own)
	session, err := tunnel.NewSession(ctx, conn)
	if err != nil {
		return nil, err
	}
	return session, t.Add(host, holder, session)
}

func (t *Table) begin(host types.NamespacedName, own *setup) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.draining {
		return false
	}
	if former := t.setups[host]; former != nil {
		former.cancel(ErrReplaced)
	}
	t.setups[host] = own
	t.settling.Add(1)
	return true
}

func (t *Table) finish(host types.NamespacedName, own *setup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.setups[host] == own {
		delete(t.setups, host)
	}
	t.settling.Done()
}

// Add adds a tunnel of a host, and ends the one that the host had. The caller has checked
// that the host may have it, and calls Review after Add, as something may have changed in
// between. Review must also follow each later change on which that depends. A table that
// drains closes the session and returns an error.
func (t *Table) Add(host types.NamespacedName, holder Holder, session *tunnel.Session) error {
	t.mu.Lock()
	if t.draining {
		t.mu.Unlock()
		session.Close(ErrDraining)
		return ErrDraining
	}
	var former *tunnel.Session
	if known := t.hosts[host]; known != nil {
		former = known.session
	}
	t.hosts[host] = &entry{session: session, holder: holder, since: t.clock.Now()}
	t.mu.Unlock()
	if former != nil {
		former.Close(ErrReplaced)
	}
	t.changed(host)
	t.metrics.opened.Inc() // last: once it has grown, the tunnel is usable and reported
	session.OnEnd(func(err error) { t.end(host, session, err) })
	return nil
}

// end records that a session has ended, unless the host has another one.
func (t *Table) end(host types.NamespacedName, session *tunnel.Session, err error) {
	t.mu.Lock()
	known := t.hosts[host]
	if known == nil || known.session != session {
		t.mu.Unlock()
		return
	}
	known.session, known.since, known.ended = nil, t.clock.Now(), err
	t.mu.Unlock()
	t.changed(host)
}

// Expect records that a host is asked for a tunnel, and reports whether that is new.
func (t *Table) Expect(host types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts[host] != nil {
		return false
	}
	t.hosts[host] = &entry{since: t.clock.Now()}
	return true
}

// Dial connects to a target through a host's tunnel. It returns tunnel.ErrAbsent if the
// host has none, and else what the tunnel's Dial returns.
func (t *Table) Dial(ctx context.Context, host types.NamespacedName, target string) (net.Conn, error) {
	conn, err := t.dial(ctx, host, target)
	t.metrics.dials.WithLabelValues(outcomeOf(err)).Inc()
	return conn, err
}

func (t *Table) dial(ctx context.Context, host types.NamespacedName, target string) (net.Conn, error) {
	session := t.session(host)
	if session == nil {
		return nil, fmt.Errorf("dialing %s on host %s: %w", target, host, tunnel.ErrAbsent)
	}
	conn, err := session.Dial(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", host, err)
	}
	return conn, nil
}

// Streams returns how many streams a host's tunnel has.
func (t *Table) Streams(host types.NamespacedName) int {
	if session := t.session(host); session != nil {
		return session.Streams()
	}
	return 0
}

// State returns the state of a host's tunnel, and false if the host has had none and was
// asked for none since the manager started.
func (t *Table) State(host types.NamespacedName) (State, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.hosts[host]
	if known == nil {
		return State{}, false
	}
	return State{Connected: known.session != nil, Holder: known.holder, Since: known.since, Ended: known.ended}, true
}

// Review ends a host's tunnel if the host may no longer have it: refusal is given its
// holder, and returns why not, or nil.
func (t *Table) Review(host types.NamespacedName, refusal func(Holder) error) {
	t.mu.Lock()
	known := t.hosts[host]
	if known == nil || known.session == nil {
		t.mu.Unlock()
		return
	}
	session, holder := known.session, known.holder
	t.mu.Unlock()
	if err := refusal(holder); err != nil {
		session.Close(err)
	}
}

// Forget ends the tunnel of a host and drops what is known of it.
func (t *Table) Forget(host types.NamespacedName, reason error) {
	t.mu.Lock()
	known := t.hosts[host]
	delete(t.hosts, host)
	t.mu.Unlock()
	if known != nil && known.session != nil {
		known.session.Close(reason)
	}
}

// Close ends all tunnels and set-ups, and refuses new ones. It returns when all have ended.
func (t *Table) Close() {
	t.mu.Lock()
	t.draining = true
	var all sync.WaitGroup
	for _, known := range t.hosts {
		if session := known.session; session != nil {
			all.Go(func() { session.Close(ErrDraining) })
		}
	}
	for _, s := range t.setups {
		s.cancel(ErrDraining)
	}
	t.mu.Unlock()
	all.Wait()
	t.settling.Wait()
}

func (t *Table) session(host types.NamespacedName) *tunnel.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.hosts[host]; known != nil {
		return known.session
	}
	return nil
}

// sessions returns all tunnels.
func (t *Table) sessions() []*tunnel.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*tunnel.Session
	for _, known := range t.hosts {
		if known.session != nil {
			all = append(all, known.session)
		}
	}
	return all
}
