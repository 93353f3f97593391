package connection

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Keys creates and opens host keys, which are stored as text.
type Keys interface {
	// New creates a key to replace current, which is blank for the first key.
	New(current string) (string, error)
	Signer(key string) (crypto.Signer, error)
}

// Options are what a Manager is made from.
type Options struct {
	Store *state.Store
	Keys  Keys
	// Servers and TrustBundle come from the configuration; Source identifies that
	// configuration, and changes when a person edits it.
	Servers     []string
	TrustBundle string
	Source      string
	// Built is a time that has certainly passed.
	Built     time.Time
	Now       func() time.Time
	UserAgent string
	// Dial connects to servers; nil means the system's dialler.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// RotateAfter is the age at which the host's key is replaced.
	RotateAfter time.Duration
	Log         *slog.Logger
}

// Manager is the connection to the manager. It is safe for concurrent use, but only
// one goroutine may call AdoptServers and RotateIfDue, and use its Follower.
type Manager struct {
	o Options
	// trial is held while another management cluster is asked with the host's key, and while that
	// key is replaced: the key's last use elsewhere must not come after the first use of the next.
	trial sync.Mutex

	mu     sync.Mutex
	client *client.Client
}

// New returns a Manager, which connects to nothing yet. It creates the host's key if
// the store has no key.
func New(o Options) (*Manager, error) {
	m := &Manager{o: o}
	if o.Store.Identity().Key == "" {
		if err := ReplaceKey(o.Store, o.Keys); err != nil {
			return nil, err
		}
	}
	c, err := m.newClient(o.Store.Identity().Key, o.Store.Trust())
	if err != nil {
		return nil, err
	}
	m.client = c
	return m, nil
}

// ReplaceKey creates a key without telling the manager, which does not know the host
// afterwards. It is for the first key and for a key that was lost.
func ReplaceKey(store *state.Store, keys Keys) error {
	key, err := keys.New(store.Identity().Key)
	if err != nil {
		return err
	}
	return store.UpdateIdentity(func(i *state.Identity) {
		i.Key, i.PendingKey, i.Generation, i.RotatedAt, i.Approved = key, "", 0, time.Time{}, false
	})
}

// Client returns the client in use. Calls on a former client are made by this one.
func (m *Manager) Client() *client.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client
}

func (m *Manager) setClient(next *client.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.client = next
}

// TrustDigest is the digest of the trust bundle in use; see protocol.TrustDigest.
func (m *Manager) TrustDigest() string {
	_, bundle := m.serversAndBundle(m.o.Store.Trust())
	return protocol.TrustDigest(bundle)
}

// newClient returns a client of the present management cluster, which connects to nothing yet.
func (m *Manager) newClient(key string, trust state.Trust) (*client.Client, error) {
	servers, bundle := m.serversAndBundle(trust)
	return m.clientWith(key, state.Management{Servers: servers, TrustBundle: bundle})
}

// clientWith returns a client, which connects to nothing yet. It takes over what the client in
// use knows of the time.
func (m *Manager) clientWith(key string, target state.Management) (*client.Client, error) {
	private, err := m.o.Keys.Signer(key)
	if err != nil {
		return nil, err
	}
	certificate, err := identity.ClientCertificate(private)
	if errors.Is(err, tpm.ErrLost) {
		return nil, fmt.Errorf("%w: the key cannot be recovered; \"elemental-agent enrol --new-key\" makes a new one, "+
			"with which an administrator has to approve this host again", err)
	}
	if err != nil {
		return nil, err
	}
	clock := m.o.Store.Clock()
	if inUse := m.Client(); inUse != nil {
		if serverTime, _ := inUse.ServerTime(); !serverTime.IsZero() {
			clock.ServerTime = serverTime
		}
		clock.Agreed = inUse.Agreed()
	}
	return client.New(client.Options{
		Servers: target.Servers, TrustBundle: target.TrustBundle, Certificate: certificate, Built: m.o.Built,
		ServerTime: clock.ServerTime, Agreed: clock.Agreed, Now: m.o.Now, UserAgent: m.o.UserAgent, Dial: m.o.Dial, Home: m.home,
	})
}

// serversAndBundle combines the configuration with the servers and the trust bundle of
// plans. A plan's trust bundle replaces the configured one, so that a CA certificate
// can be retired; the configured servers remain as a last resort, unless the host has followed
// to another management cluster: they are those of the former one. A configuration that
// was edited since takes precedence, so that a person can move the host.
func (m *Manager) serversAndBundle(trust state.Trust) (servers []string, bundle string) {
	switch {
	case trust.TrustBundle == "":
		servers, bundle = append(slices.Clone(trust.Servers), m.o.Servers...), m.o.TrustBundle
	case trust.Config == m.o.Source && trust.Former != nil:
		servers, bundle = slices.Clone(trust.Servers), trust.TrustBundle
	case trust.Config == m.o.Source:
		servers, bundle = append(slices.Clone(trust.Servers), m.o.Servers...), trust.TrustBundle
	default:
		servers = append(slices.Clone(m.o.Servers), trust.Servers...)
		bundle = m.o.TrustBundle + "\n" + trust.TrustBundle
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(servers, func(server string) bool {
		duplicate := seen[server]
		seen[server] = true
		return duplicate
	}), bundle
}

// home is what the host was last enrolled as.
func (m *Manager) home() (namespace, name string) {
	identity := m.o.Store.Identity()
	return identity.Namespace, identity.Name
}
