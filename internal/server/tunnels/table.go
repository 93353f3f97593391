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
	clock clock.PassiveClock
	// changed is called after a host's tunnel was added or has ended.
	changed func(host types.NamespacedName)

	mu       sync.Mutex
	hosts    map[types.NamespacedName]*entry
	draining bool
}

// entry is what the table knows of a host.
type entry struct {
	// session is nil if the host has no tunnel any longer.
	session *tunnel.Session
	boot    string
	since   time.Time
	ended   error
}

// State is the state of a host's tunnel.
type State struct {
	// Connected says that the host has a tunnel.
	Connected bool
	// Boot is the boot that has made the tunnel.
	Boot string
	// Since is when the state began.
	Since time.Time
	// Ended is why the last tunnel has ended.
	Ended error
}

// NewTable returns an empty table. It calls changed after each change of a host's state,
// which must return quickly.
func NewTable(now clock.PassiveClock, changed func(host types.NamespacedName)) *Table {
	return &Table{clock: now, changed: changed, hosts: map[types.NamespacedName]*entry{}}
}

// Add adds a tunnel of a host, made by one of its boots, and ends the one that the host
// had. The caller has checked that the host may have it, and calls Review after Add, as
// something may have changed in between. Review must also follow each later change on
// which that depends. A table that drains closes the session and returns an error.
func (t *Table) Add(host types.NamespacedName, boot string, session *tunnel.Session) error {
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
	t.hosts[host] = &entry{session: session, boot: boot, since: t.clock.Now()}
	t.mu.Unlock()
	if former != nil {
		former.Close(ErrReplaced)
	}
	t.changed(host)
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

// Dial connects to a target through a host's tunnel. It returns tunnel.ErrAbsent if the
// host has none, and else what the tunnel's Dial returns.
func (t *Table) Dial(ctx context.Context, host types.NamespacedName, target string) (net.Conn, error) {
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

// State returns the state of a host's tunnel, and false if the host has had none since
// the manager started.
func (t *Table) State(host types.NamespacedName) (State, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.hosts[host]
	if known == nil {
		return State{}, false
	}
	return State{Connected: known.session != nil, Boot: known.boot, Since: known.since, Ended: known.ended}, true
}

// Review ends a host's tunnel if the host may no longer have it: refusal is given the
// boot that has made it, and returns why not, or nil.
func (t *Table) Review(host types.NamespacedName, refusal func(boot string) error) {
	t.mu.Lock()
	known := t.hosts[host]
	if known == nil || known.session == nil {
		t.mu.Unlock()
		return
	}
	session, boot := known.session, known.boot
	t.mu.Unlock()
	if err := refusal(boot); err != nil {
		session.Close(err)
	}
}

// Forget ends the tunnel of a deleted host and drops what is known of it.
func (t *Table) Forget(host types.NamespacedName, reason error) {
	t.mu.Lock()
	known := t.hosts[host]
	delete(t.hosts, host)
	t.mu.Unlock()
	if known != nil && known.session != nil {
		known.session.Close(reason)
	}
}

// Close ends all tunnels and refuses new ones. It returns when all have ended.
func (t *Table) Close() {
	t.mu.Lock()
	t.draining = true
	var all sync.WaitGroup
	for _, known := range t.hosts {
		if session := known.session; session != nil {
			all.Go(func() { session.Close(ErrDraining) })
		}
	}
	t.mu.Unlock()
	all.Wait()
}

func (t *Table) session(host types.NamespacedName) *tunnel.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.hosts[host]; known != nil {
		return known.session
	}
	return nil
}
