package connection

import (
	"context"
	"fmt"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// AdoptServers stores the successor of a plan, and uses the plan's servers and trust bundle from
// now on. It first makes a connection with them: a wrong plan must not disconnect the host. After
// an error the former ones stay in use.
func (m *Manager) AdoptServers(ctx context.Context, desired protocol.Desired) error {
	next := state.Trust{Servers: desired.Servers, TrustBundle: desired.TrustBundle, Config: m.o.Source}
	if err := m.adoptSuccessor(desired); err != nil {
		return err
	}
	former := m.o.Store.Trust()
	next.Successor = former.Successor
	if former.Config == m.o.Source {
		// If a person has edited the configuration, the host is where that says.
		next.Former = former.Former
	}
	if len(next.Servers) == 0 {
		next.Servers = former.Servers
	}
	if next.TrustBundle == "" {
		next.TrustBundle = former.TrustBundle
	}
	if len(next.Servers) == 0 && next.TrustBundle == "" || equalTrust(next, former) {
		return nil
	}
	if m.isSameConnection(next, former) {
		// The plan came over exactly this connection. Not testing it halves the handshakes
		// of a fleet that enrols at one time.
		return m.o.Store.SetTrust(next)
	}
	candidate, err := m.newClient(m.o.Store.Identity().Key, next)
	if err != nil {
		return fmt.Errorf("checking the servers of the plan: %w", err)
	}
	if err := m.ask(ctx, candidate); err != nil {
		candidate.Close()
		return fmt.Errorf("trying the servers of the plan: %w", err)
	}
	if err := m.o.Store.SetTrust(next); err != nil {
		candidate.Close()
		return err
	}
	m.Client().Follow(candidate)
	m.setClient(candidate)
	return nil
}

// isSameConnection reports whether clients made with a and b would have the same
// servers and trust bundle.
func (m *Manager) isSameConnection(a, b state.Trust) bool {
	servers, bundle := m.serversAndBundle(a)
	otherServers, otherBundle := m.serversAndBundle(b)
	return bundle == otherBundle && slices.Equal(servers, otherServers)
}

func equalTrust(a, b state.Trust) bool {
	return a.TrustBundle == b.TrustBundle && a.Config == b.Config && slices.Equal(a.Servers, b.Servers) &&
		a.Former == b.Former && a.Successor == b.Successor
}
