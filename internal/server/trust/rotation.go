package trust

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// Rotate announces the host's next key. Current and next key are accepted until the next
// one is used, so a host that loses the answer, or power, continues with either. A
// repeated request with the same key changes nothing. If two copies of a host announce
// different keys, or count their rotations differently, the host is locked.
func (a *Authenticator) Rotate(ctx context.Context, host *infrav1.ElementalHost, current string, in protocol.RotateRequest) error {
	next, err := identity.VerifyRotation(in.PublicKey, in.Signature, current)
	if err != nil {
		a.audit.Record(ctx, audit.RotationRefused, host, "reason", "NotProven")
		return problem.BadRequest("The new key's possession is not proven")
	}
	before, err := a.hosts.ReadLive(ctx, client.ObjectKeyFromObject(host))
	if err != nil {
		return err
	}
	if !hoststore.AcceptsKey(before, current) || hoststore.RoleOf(before, current) != hoststore.KeyCurrent {
		return problem.UnknownHost()
	}
	if before.IsFixed() {
		return problem.Busy(time.Second)
	}
	if announced, err := a.checkRotation(ctx, before, current, next, in.Generation); announced || err != nil {
		return err
	}
	if err := a.keys.AddNext(ctx, before.Namespace, current, next); err != nil {
		return err
	}
	if from := before.Spec.GrantedFrom; from != nil {
		// The tokens of the pool know the host.
		if err := a.keys.AddNext(ctx, from.Namespace, current, next); err != nil {
			return err
		}
	}
	after := before.DeepCopy()
	after.Spec.Identity.NextKeyFingerprint = next
	if err = a.hosts.PatchSpec(ctx, before, after); err != nil {
		if apierrors.IsConflict(err) {
			return problem.Busy(time.Second)
		}
		return err
	}
	a.audit.Record(ctx, audit.Rotated, after, "keyFingerprint", current, "nextKeyFingerprint", next)
	return nil
}

// checkRotation reports whether the next key is announced already. It returns a problem if
// the rotation is refused.
func (a *Authenticator) checkRotation(ctx context.Context, host *infrav1.ElementalHost, current, next string, generation int64) (announced bool, err error) {
	id := host.Spec.Identity
	if recorded := max(id.Generation, 1); generation != recorded {
		a.audit.Record(ctx, audit.RotationRefused, host, "reason", "StaleGeneration", "generation", recorded, "claimed", generation)
		if id.FormerKeyFingerprint == "" {
			// The host may have missed that it was bound again or re-adopted, which restarts
			// the count. A different count proves a copy only after a rotation here.
			return false, problem.StaleGeneration()
		}
		return false, a.lock(ctx, host, current, "The host asked for a new key as one that has changed its key another number of times: there is a copy of its state",
			func(newest *infrav1.ElementalHost) bool {
				return hoststore.AcceptsKey(newest, current) && newest.Spec.Identity.Generation == id.Generation
			})
	}
	if id.NextKeyFingerprint == next {
		return true, nil
	}
	if id.NextKeyFingerprint != "" {
		a.audit.Record(ctx, audit.RotationRefused, host, "reason", "OtherKeyPending")
		return false, a.lock(ctx, host, current, "The host asked for a new key while it was changing to another: two machines use the host's key",
			func(newest *infrav1.ElementalHost) bool {
				return hoststore.AcceptsKey(newest, current) && newest.Spec.Identity.NextKeyFingerprint == id.NextKeyFingerprint
			})
	}
	other, _, err := a.hosts.ByKey(ctx, next, types.NamespacedName{})
	ambiguous := errors.Is(err, hoststore.ErrAmbiguousKey)
	if err != nil && !ambiguous {
		return false, err
	}
	if other != nil || ambiguous {
		a.audit.Record(ctx, audit.RotationRefused, host, "reason", "KeyInUse")
		return false, problem.BadRequest("The new key can't be used")
	}
	return false, nil
}
