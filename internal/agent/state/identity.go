package state

import (
	"fmt"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
)

// Identity is the host's key and what the manager has assigned to it.
type Identity struct {
	// Key is the private key as package hostkey writes it.
	Key string `json:"key"`
	// PendingKey is the next key of a rotation under way. It is offered until the manager
	// has accepted it, and used only once it is Key.
	PendingKey string `json:"pendingKey,omitempty"`
	// Generation counts the keys, from 1, as the manager does.
	Generation int64 `json:"generation"`
	// RotatedAt is when the key was first used, by the manager's clock.
	RotatedAt time.Time `json:"rotatedAt,omitzero"`
	// HostID is blank until the host is enrolled.
	HostID    string `json:"hostID,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Approved  bool   `json:"approved,omitempty"`
}

// Enrolled reports whether a manager has enrolled the host.
func (i Identity) Enrolled() bool { return i.HostID != "" }

func (i Identity) check() error {
	if err := hostkey.Check(i.Key); err != nil {
		return fmt.Errorf("the key: %w", err)
	}
	if i.PendingKey == "" {
		return nil
	}
	if err := hostkey.Check(i.PendingKey); err != nil {
		return fmt.Errorf("the pending key: %w", err)
	}
	return nil
}

// Identity returns a copy; its Key is blank on a host that never had one.
func (s *Store) Identity() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

// UpdateIdentity changes the identity and stores it.
func (s *Store) UpdateIdentity(change func(*Identity)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.identity
	change(&next)
	if next == s.identity {
		return nil
	}
	if err := write(s.files, identityFile, next); err != nil {
		return err
	}
	s.identity = next
	return nil
}
