package connection

import (
	"context"
	"errors"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Successor returns the successor of the present management cluster, or nil.
func (m *Manager) Successor() *protocol.Successor {
	s := m.o.Store.Trust().Successor
	if s == nil {
		return nil
	}
	return &protocol.Successor{Servers: s.Servers, TrustBundle: s.TrustBundle}
}

// adoptSuccessor stores the successor of a plan, which must outlive the plan: during a move, the
// host's registration may end before the host does.
func (m *Manager) adoptSuccessor(desired protocol.Desired) error {
	trust := m.o.Store.Trust()
	switch {
	case desired.Successor != nil:
		trust.Successor = &state.Management{Servers: desired.Successor.Servers, TrustBundle: desired.Successor.TrustBundle}
	case !desired.KeepSuccessor:
		trust.Successor = nil
	}
	return m.o.Store.SetTrust(trust)
}

// TrySuccessor asks a successor of the management cluster for an answer. It succeeds if a server
// of the successor knows the host or says that it does not, and changes nothing.
func (m *Manager) TrySuccessor(ctx context.Context, successor protocol.Successor) error {
	m.trial.Lock()
	defer m.trial.Unlock()
	candidate, err := m.clientOf(state.Management{Servers: successor.Servers, TrustBundle: successor.TrustBundle})
	if err != nil {
		return err
	}
	defer candidate.Close()
	if err := m.ask(ctx, candidate); !client.IsProblem(err, protocol.ProblemUnknownHost) {
		return err
	}
	return nil
}

// ask makes a call that changes nothing, with a client that is not the one in use and has the same
// key. It succeeds if the managers know the host.
func (m *Manager) ask(ctx context.Context, candidate *client.Client) error {
	err := candidate.Report(ctx, protocol.Report{})
	if _, refused := errors.AsType[*client.ProblemError](err); err != nil && !refused && !client.Unreachable(err) {
		m.Client().RecordAbandoned()
	}
	return err
}

// follow changes to another management cluster if that one knows the host, and reports whether
// it did. It tries the successor. If isUnknown is true, the present management cluster does not
// know the host: then it also tries the former one, so that a move can be taken back. After an
// error the host stays where it is.
//
// The new management cluster is durable before it is used. Its first plan says which servers and
// which trust bundle the host uses from then on.
func (m *Manager) follow(ctx context.Context, isUnknown bool) (followed bool, err error) {
	var targets []state.Management
	trust := m.o.Store.Trust()
	if trust.Successor != nil {
		targets = append(targets, *trust.Successor)
	}
	if trust.Former != nil && isUnknown {
		targets = append(targets, *trust.Former)
	}
	var failures []error
	for _, target := range targets {
		err := m.followTo(ctx, target)
		if err == nil {
			return true, nil
		}
		if state.IsWriteError(err) {
			return false, err
		}
		failures = append(failures, err)
	}
	return false, errors.Join(failures...)
}

func (m *Manager) followTo(ctx context.Context, target state.Management) error {
	candidate, err := m.clientOf(target)
	if err != nil {
		return err
	}
	if err := m.ask(ctx, candidate); err != nil {
		candidate.Close()
		return err
	}
	servers, bundle := m.serversAndBundle(m.o.Store.Trust())
	next := state.Trust{
		Servers: target.Servers, TrustBundle: target.TrustBundle, Config: m.o.Source,
		Former: &state.Management{Servers: servers, TrustBundle: bundle},
	}
	if err := m.o.Store.SetTrust(next); err != nil {
		candidate.Close()
		return err
	}
	m.Client().Follow(candidate)
	m.setClient(candidate)
	m.o.Log.Info("Followed to another management cluster", "servers", target.Servers)
	return nil
}

// clientOf returns a client of a management cluster that is not the present one. Its trust bundle
// counts for its servers only, and no other bundle does.
func (m *Manager) clientOf(target state.Management) (*client.Client, error) {
	c, err := m.clientWith(m.o.Store.Identity().Key, target)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to another management cluster: %w", err)
	}
	return c, nil
}
