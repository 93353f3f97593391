package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// LinkOptions say what a Link is made from.
type LinkOptions struct {
	Store *state.Store
	// Servers and TrustBundle are the configuration's; Source names them.
	Servers     []string
	TrustBundle string
	Source      string
	// Built is a time that has certainly passed.
	Built     time.Time
	Now       func() time.Time
	UserAgent string
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
		key, err := newKey()
		if err != nil {
			return nil, err
		}
		if err := o.Store.UpdateIdentity(func(i *state.Identity) { i.Key = key }); err != nil {
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

// Client is the one to use now.
func (l *Link) Client() *client.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

func (l *Link) use(next *client.Client) {
	l.mu.Lock()
	before := l.client
	l.client = next
	l.mu.Unlock()
	before.Close()
}

// dial makes a client; it connects to nothing.
func (l *Link) dial(key string, learnt state.Trust) (*client.Client, error) {
	private, err := identity.DecodeKey([]byte(key))
	if err != nil {
		return nil, err
	}
	certificate, err := identity.ClientCertificate(private)
	if err != nil {
		return nil, err
	}
	servers, bundle := l.managers(learnt)
	serverTime := l.o.Store.Clock().ServerTime
	if current := l.current(); current != nil {
		if told, _ := current.ServerTime(); told.After(serverTime) {
			serverTime = told
		}
	}
	return client.New(client.Options{
		Servers: servers, TrustBundle: bundle, Certificate: certificate, Built: l.o.Built,
		ServerTime: serverTime, Now: l.o.Now, UserAgent: l.o.UserAgent,
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
	l.use(candidate)
	return nil
}

func sameTrust(a, b state.Trust) bool {
	return a.TrustBundle == b.TrustBundle && a.Config == b.Config && slices.Equal(a.Servers, b.Servers)
}

func newKey() (string, error) {
	key, err := identity.NewKey()
	if err != nil {
		return "", err
	}
	text, err := identity.EncodeKey(key)
	return string(text), err
}
