package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// rotateIfDue replaces the host's key when it is old enough by the manager's
// clock. It is called after a successful poll, so it needs no timer, and the
// key on record is known to be the one in use.
func (a *Agent) rotateIfDue(ctx context.Context) error {
	who := a.Store.Identity()
	if who.RotatedAt.IsZero() {
		return a.Store.UpdateIdentity(func(i *state.Identity) { i.RotatedAt = utc(a.Link.Client().ServerNow()) })
	}
	// A pending key at this point is one that the manager has not taken over.
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
		next, err := newKey()
		if err != nil {
			return err
		}
		if err := a.Store.UpdateIdentity(func(i *state.Identity) { i.PendingKey = next }); err != nil {
			return err
		}
	}
	request, err := rotation(a.Store.Identity())
	if err != nil {
		return err
	}
	if err := a.Link.Client().Rotate(ctx, request); err != nil {
		// Whether the manager took the key over will show: the next poll works
		// with the old key, or resolvePending finds the new one to be in use.
		a.Log.Warn("Could not rotate the host's key", "error", err)
		return nil
	}
	return a.promote()
}

// rotation asks to replace the key in use by the pending one.
func rotation(who state.Identity) (protocol.RotateRequest, error) {
	old, err := identity.DecodeKey([]byte(who.Key))
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	next, err := identity.DecodeKey([]byte(who.PendingKey))
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	oldPublic, err := identity.PublicKeyBytes(old)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	public, err := identity.PublicKeyBytes(next)
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	signature, err := identity.SignRotation(next, identity.Fingerprint(oldPublic))
	if err != nil {
		return protocol.RotateRequest{}, err
	}
	return protocol.RotateRequest{PublicKey: public, Signature: signature, Generation: who.Generation}, nil
}

// promote makes the pending key the one in use.
func (a *Agent) promote() error {
	now := utc(a.Link.Client().ServerNow())
	next, err := a.Link.dial(a.Store.Identity().PendingKey, a.Store.Trust())
	if err != nil {
		return err
	}
	err = a.Store.UpdateIdentity(func(i *state.Identity) {
		i.Key, i.PendingKey = i.PendingKey, ""
		i.Generation++
		i.RotatedAt = now
	})
	if err != nil {
		next.Close()
		return fmt.Errorf("changing to the new key: %w", err)
	}
	a.Link.use(next)
	a.Log.Info("Rotated the host's key", "generation", a.Store.Identity().Generation)
	return nil
}

// resolvePending finds out, when the manager refuses the key in use, whether
// it has taken over the pending one already: the host may have died after the
// manager's answer and before it remembered it.
func (a *Agent) resolvePending(ctx context.Context, cause error) (promoted bool, err error) {
	who := a.Store.Identity()
	refused := client.IsProblem(cause, protocol.ProblemUnknownHost) ||
		client.IsProblem(cause, protocol.ProblemRevoked) || client.IsProblem(cause, protocol.ProblemStaleGeneration)
	if who.PendingKey == "" || !refused {
		return false, nil
	}
	candidate, err := a.Link.dial(who.PendingKey, a.Store.Trust())
	if err != nil {
		return false, err
	}
	defer candidate.Close()
	if err := candidate.Report(ctx, protocol.Report{}); err != nil {
		a.Log.Info("The manager doesn't know the pending key either", "error", err)
		return false, nil
	}
	return true, a.promote()
}
