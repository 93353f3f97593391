package connection

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/hostkey"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// drainTime is how long a rotation waits for requests with the old key to end.
const drainTime = client.CallTimeout + 5*time.Second

// maxKeyTimeAhead is how far a key's RotatedAt may be ahead of the manager's time.
// Replicas and restarts differ by little, and a key's age is counted in days.
const maxKeyTimeAhead = 24 * time.Hour

// RotateIfDue replaces the host's key if it is old enough by the manager's clock. The
// poller calls it between two polls, so it needs no timer. It logs failures and
// returns only errors of the state directory.
//
// The manager accepts the next key beside the current one. The first use of the next
// key makes the current one a sign of a copied disk, and the manager then locks the
// host. Hence this order:
//
//  1. The next key is stored before it is offered, and the same one is offered again
//     after a failure.
//  2. All requests with the old key are answered.
//  3. The next key is stored as the host's key.
//  4. The next key is used.
//
// After a crash before step 3 the host works with its old key and offers the same next
// key again. After a crash later it no longer has the old key.
func (m *Manager) RotateIfDue(ctx context.Context) error {
	current := m.o.Store.Identity()
	// A RotatedAt in the future comes from a manager whose clock was ahead. The key
	// would live that much too long.
	if now := m.Client().ServerNow(); current.RotatedAt.IsZero() || current.RotatedAt.After(now.Add(maxKeyTimeAhead)) {
		return m.o.Store.UpdateIdentity(func(i *state.Identity) { i.RotatedAt = m.serverNow() })
	}
	if !m.Client().IsQuiet() {
		return nil // the next poll tries again
	}
	if current.PendingKey == "" && m.Client().ServerNow().Before(current.RotatedAt.Add(m.rotationAge(current))) {
		return nil
	}
	if !m.trial.TryLock() {
		return nil // the next poll tries again
	}
	defer m.trial.Unlock()
	return m.rotate(ctx)
}

// serverNow is the manager's time without the monotonic clock, which means nothing in
// a file.
func (m *Manager) serverNow() time.Time { return m.Client().ServerNow().UTC().Round(0) }

// rotationAge is the age at which a key is replaced. It spreads a fleet that enrolled
// on one day over a tenth of the period, and is constant for one key.
func (m *Manager) rotationAge(current state.Identity) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(current.Key))
	spread := float64(hash.Sum32()) / (1 << 32)
	return m.o.RotateAfter - time.Duration(spread*float64(m.o.RotateAfter)/10)
}

func (m *Manager) rotate(ctx context.Context) error {
	if m.o.Store.Identity().PendingKey == "" {
		next, err := m.o.Keys.New(m.o.Store.Identity().Key)
		if err != nil {
			m.o.Log.Error("Could not create a new key; the host keeps its current key", "error", err)
			return nil
		}
		if err := m.o.Store.UpdateIdentity(func(i *state.Identity) { i.PendingKey = next }); err != nil {
			return err
		}
	}
	current := m.o.Store.Identity()
	request, err := m.rotateRequest(current)
	if err == nil {
		err = m.Client().Rotate(ctx, request)
	}
	if err != nil {
		m.o.Log.Warn("Could not rotate the host's key; will retry", "error", err)
		return nil
	}
	return m.usePendingKey(ctx, current)
}

// rotateRequest asks to replace the current key by the pending one.
func (m *Manager) rotateRequest(current state.Identity) (protocol.RotateRequest, error) {
	fingerprint, err := hostkey.Fingerprint(current.Key)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	pending, err := m.o.Keys.Signer(current.PendingKey)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	public, err := identity.PublicKeyBytes(pending)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	signature, err := identity.SignRotation(pending, fingerprint)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	return protocol.RotateRequest{PublicKey: public, Signature: signature, Generation: max(current.Generation, 1)}, nil
}

// usePendingKey makes the pending key, which the manager has accepted, the host's key.
func (m *Manager) usePendingKey(ctx context.Context, current state.Identity) error {
	now := m.serverNow()
	next, err := m.newClient(current.PendingKey, m.o.Store.Trust())
	if err != nil {
		m.o.Log.Warn("Could not use the new key; will retry", "error", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	err = m.Client().HandOver(ctx, next, func() error {
		return m.o.Store.UpdateIdentity(func(i *state.Identity) {
			i.Key, i.PendingKey = i.PendingKey, ""
			i.Generation = max(i.Generation, 1) + 1
			i.RotatedAt = now
		})
	})
	if errors.Is(err, client.ErrBusy) {
		m.o.Log.Info("The manager accepted the new key; it is used once all requests with the old key have ended")
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing to the new key: %w", err)
	}
	m.setClient(next)
	m.o.Log.Info("Rotated the host's key", "generation", m.o.Store.Identity().Generation)
	return nil
}
