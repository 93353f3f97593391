package agent

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

// drainTime is how long a rotation waits for requests of the old key.
const drainTime = client.CallTimeout + 5*time.Second

// aheadOfKeys is how far a key's time may be ahead of the manager's: replicas and
// restarts differ by little, and a key's age is counted in days.
const aheadOfKeys = 24 * time.Hour

// rotateIfDue replaces the host's key when it is old enough by the manager's
// clock. It is called between two polls, so it needs no timer.
//
// The manager accepts the next key beside the present one; the first use of the
// next key makes the present one a sign of a copied disk, for which the host is
// locked. Hence the order: the next key is durable before it is offered, always
// the same one is offered again, and it is used only after it was durably made
// the host's key and all requests of the old one have been answered. A crash
// before that leaves a host that works with its old key and offers the same next
// one again; a crash after that leaves one that has never known the old key.
func (a *Agent) rotateIfDue(ctx context.Context) error {
	who := a.Store.Identity()
	// A time to come was told by a manager that was ahead: the key would live for as
	// long beyond its age.
	if now := a.Link.Client().ServerNow(); who.RotatedAt.IsZero() || who.RotatedAt.After(now.Add(aheadOfKeys)) {
		return a.Store.UpdateIdentity(func(i *state.Identity) { i.RotatedAt = utc(a.Link.Client().ServerNow()) })
	}
	if !a.Link.Client().Settled() {
		return nil // a later poll will do
	}
	if who.PendingKey == "" && a.Link.Client().ServerNow().Before(who.RotatedAt.Add(a.rotationAge(who))) {
		return nil
	}
	return a.rotate(ctx)
}

// rotationAge spreads a fleet that enrolled on one day over a tenth of the
// period, always the same for one key.
func (a *Agent) rotationAge(who state.Identity) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(who.Key))
	spread := float64(hash.Sum32()) / (1 << 32)
	return a.RotateAfter - time.Duration(spread*float64(a.RotateAfter)/10)
}

func (a *Agent) rotate(ctx context.Context) error {
	if a.Store.Identity().PendingKey == "" {
		next, err := a.Link.o.Keys.New(a.Store.Identity().Key)
		if err != nil {
			a.Log.Error("Could not make a new key, and keeps the one it has", "error", err)
			return nil
		}
		if err := a.Store.UpdateIdentity(func(i *state.Identity) { i.PendingKey = next }); err != nil {
			return err
		}
	}
	who := a.Store.Identity()
	request, err := a.Link.rotation(who)
	if err == nil {
		err = a.Link.Client().Rotate(ctx, request)
	}
	if err != nil {
		a.Log.Warn("Could not rotate the host's key, and tries again", "error", err)
		return nil
	}
	return a.promote(ctx, who)
}

// rotation asks to replace the key in use by the pending one.
func (l *Link) rotation(who state.Identity) (protocol.RotateRequest, error) {
	old, err := hostkey.Fingerprint(who.Key)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	next, err := l.o.Keys.Signer(who.PendingKey)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	public, err := identity.PublicKeyBytes(next)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	signature, err := identity.SignRotation(next, old)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	return protocol.RotateRequest{PublicKey: public, Signature: signature, Generation: max(who.Generation, 1)}, nil
}

// promote makes the pending key, which the manager has accepted, the host's.
func (a *Agent) promote(ctx context.Context, who state.Identity) error {
	now := utc(a.Link.Client().ServerNow())
	next, err := a.Link.dial(who.PendingKey, a.Store.Trust())
	if err != nil {
		a.Log.Warn("Could not use the new key, and tries again", "error", err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	err = a.Link.Client().HandOver(ctx, next, func() error {
		return a.Store.UpdateIdentity(func(i *state.Identity) {
			i.Key, i.PendingKey = i.PendingKey, ""
			i.Generation = max(i.Generation, 1) + 1
			i.RotatedAt = now
		})
	})
	if errors.Is(err, client.ErrBusy) {
		a.Log.Info("The new key is accepted and waits until all requests of the old one are over")
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing to the new key: %w", err)
	}
	a.Link.use(next)
	a.Log.Info("Rotated the host's key", "generation", a.Store.Identity().Generation)
	return nil
}
