package agent

import (
	"context"
	"crypto"
	"errors"
	"fmt"
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

// Keys makes and opens host keys, which it knows as text.
type Keys interface {
	// New makes a key to take the place of current, which is blank for the first.
	New(current string) (string, error)
	Signer(key string) (crypto.Signer, error)
}

// LinkOptions say what a Link is made from.
type LinkOptions struct {
	Store *state.Store
	Keys  Keys
	// Servers and TrustBundle are the configuration's; Source names them.
	Servers     []string
	TrustBundle string
	Source      string
	// Built is a time that has certainly passed.
	Built     time.Time
	Now       func() time.Time
	UserAgent string
	// Dial connects to managers; nil means the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Link is the way to the manager: a client made from the key that is in use
// and from the servers that are known. Both may change while it is used.
type Link struct {
	o LinkOptions

	mu     sync.Mutex
	client *client.Client
}

// NewLink makes the host's key if it has none yet.
func NewLink(o LinkOptions) (*Link, error) {
	l := &Link{o: o}
	if o.Store.Identity().Key == "" {
		if err := ReplaceKey(o.Store, o.Keys); err != nil {
			return nil, err
		}
	}
	c, err := l.dial(o.Store.Identity().Key, o.Store.Trust())
	if err != nil {
		return nil, err
	}
	l.client = c
	return l, nil
}

// ReplaceKey makes a key without telling the manager, to which the host is a
// stranger afterwards: for the first key, and for one that was lost.
func ReplaceKey(store *state.Store, keys Keys) error {
	key, err := keys.New(store.Identity().Key)
	if err != nil {
		return err
	}
	return store.UpdateIdentity(func(i *state.Identity) {
		i.Key, i.PendingKey, i.Generation, i.RotatedAt, i.Approved = key, "", 0, time.Time{}, false
	})
}

// Client is the one to use now. One that was used before makes its calls with
// this one.
func (l *Link) Client() *client.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

func (l *Link) use(next *client.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = next
}

// TrustDigest names the roots in use, as protocol.TrustDigest does.
func (l *Link) TrustDigest() string {
	_, bundle := l.managers(l.o.Store.Trust())
	return protocol.TrustDigest(bundle)
}

// dial makes a client; it connects to nothing.
func (l *Link) dial(key string, learnt state.Trust) (*client.Client, error) {
	private, err := l.o.Keys.Signer(key)
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
	servers, bundle := l.managers(learnt)
	clock := l.o.Store.Clock()
	if current := l.current(); current != nil {
		if told, _ := current.ServerTime(); !told.IsZero() {
			clock.ServerTime = told
		}
		clock.Agreed = current.Agreed()
	}
	return client.New(client.Options{
		Servers: servers, TrustBundle: bundle, Certificate: certificate, Built: l.o.Built,
		ServerTime: clock.ServerTime, Agreed: clock.Agreed, Now: l.o.Now, UserAgent: l.o.UserAgent, Dial: l.o.Dial,
	})
}

func (l *Link) current() *client.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

// managers combines the configuration with what plans have taught. What a plan
// taught replaces the configured roots, so that a root can be retired; the
// configured servers remain as a last resort. A configuration that was changed
// since counts first, so that a person can lead the host back.
func (l *Link) managers(learnt state.Trust) (servers []string, bundle string) {
	switch {
	case learnt.TrustBundle == "":
		servers, bundle = append(slices.Clone(learnt.Servers), l.o.Servers...), l.o.TrustBundle
	case learnt.Config == l.o.Source:
		servers, bundle = append(slices.Clone(learnt.Servers), l.o.Servers...), learnt.TrustBundle
	default:
		servers = append(slices.Clone(l.o.Servers), learnt.Servers...)
		bundle = l.o.TrustBundle + "\n" + learnt.TrustBundle
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(servers, func(server string) bool {
		again := seen[server]
		seen[server] = true
		return again
	}), bundle
}

// learn takes over the servers and roots of a plan once a connection has shown
// that they work: a mistake must not cut the host off.
func (l *Link) learn(ctx context.Context, desired protocol.Desired) error {
	next := state.Trust{Servers: desired.Servers, TrustBundle: desired.TrustBundle, Config: l.o.Source}
	before := l.o.Store.Trust()
	if len(next.Servers) == 0 {
		next.Servers = before.Servers
	}
	if next.TrustBundle == "" {
		next.TrustBundle = before.TrustBundle
	}
	if len(next.Servers) == 0 && next.TrustBundle == "" || sameTrust(next, before) {
		return nil
	}
	if l.sameManagers(next, before) {
		// It is what brought the plan: a fleet that enrols at one time is spared half of
		// its handshakes.
		return l.o.Store.SetTrust(next)
	}
	candidate, err := l.dial(l.o.Store.Identity().Key, next)
	if err != nil {
		return fmt.Errorf("checking the servers of the plan: %w", err)
	}
	if err := candidate.Report(ctx, protocol.Report{}); err != nil {
		candidate.Close()
		return fmt.Errorf("trying the servers of the plan: %w", err)
	}
	if err := l.o.Store.SetTrust(next); err != nil {
		candidate.Close()
		return err
	}
	l.Client().Follow(candidate)
	l.use(candidate)
	return nil
}

// sameManagers reports whether a client made with either would be the same.
func (l *Link) sameManagers(a, b state.Trust) bool {
	servers, bundle := l.managers(a)
	sameServers, sameBundle := l.managers(b)
	return bundle == sameBundle && slices.Equal(servers, sameServers)
}

func sameTrust(a, b state.Trust) bool {
	return a.TrustBundle == b.TrustBundle && a.Config == b.Config && slices.Equal(a.Servers, b.Servers)
}
