package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// rotate announces the key that follows the one of the connection it arrives on.
// Both are good until the new one is used, so that a host which loses the answer,
// or its power, goes on with either. Asking again for the same key is the same as
// asking once; of two copies of a host that each ask for another, or that differ
// in what they have done, only one goes on, and both are found out.
func (s *Server) rotate(w http.ResponseWriter, r *http.Request, who caller) error {
	key := client.ObjectKeyFromObject(who.host)
	if after, ok := s.presence.allowReport(key); !ok {
		return errTooMany(after)
	}
	in, err := decode[protocol.RotateRequest](w, r)
	if err != nil {
		return err
	}
	fingerprint, err := identity.VerifyRotation(in.PublicKey, in.Signature, who.fingerprint)
	if err != nil {
		s.audit(r.Context(), decidedRotationRefused, who.host, "reason", "NotProven")
		return errBadRequest("The new key's possession is not proven")
	}
	before, err := s.hosts.read(r.Context(), key)
	if err != nil {
		return err
	}
	if !holds(before, who.fingerprint) || roleOf(before, who.fingerprint) != keyCurrent {
		return errUnknownHost()
	}
	if done, err := s.checkRotation(r.Context(), before, who.fingerprint, fingerprint, in.Generation); done || err != nil {
		if err == nil {
			w.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	after := before.DeepCopy()
	after.Spec.Identity.NextKeyFingerprint = fingerprint
	err = s.client.Patch(r.Context(), after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return errBusy(time.Second)
	}
	if apierrors.IsNotFound(err) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("writing next key: %w", err)
	}
	s.hosts.remember(after)
	s.audit(r.Context(), decidedRotated, after, "keyFingerprint", who.fingerprint, "nextKeyFingerprint", fingerprint)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkRotation tells whether there is nothing to do any more, or why the rotation
// must not be.
func (s *Server) checkRotation(ctx context.Context, host *infrav1.ElementalHost, current, next string, generation int64) (done bool, err error) {
	id := host.Spec.Identity
	if is := max(id.Generation, 1); generation != is {
		s.audit(ctx, decidedRotationRefused, host, "reason", "StaleGeneration", "generation", is, "claimed", generation)
		if id.FormerKeyFingerprint == "" {
			// The host counts from another life: it was bound anew, or adopted again,
			// by a manager that it didn't hear. Only once it has rotated here have
			// both counted alike.
			return false, errStaleGeneration()
		}
		return false, s.lock(ctx, host, current, "The host asked for a new key as one that has changed its key another number of times: there is a copy of its state",
			func(now *infrav1.ElementalHost) bool {
				return holds(now, current) && now.Spec.Identity.Generation == id.Generation
			})
	}
	if id.NextKeyFingerprint == next {
		return true, nil
	}
	if id.NextKeyFingerprint != "" {
		s.audit(ctx, decidedRotationRefused, host, "reason", "OtherKeyPending")
		return false, s.lock(ctx, host, current, "The host asked for a new key while it was changing to another: two machines use the host's key",
			func(now *infrav1.ElementalHost) bool {
				return holds(now, current) && now.Spec.Identity.NextKeyFingerprint == id.NextKeyFingerprint
			})
	}
	other, _, err := s.hosts.byKey(ctx, next)
	ambiguous := errors.Is(err, errAmbiguousKey)
	if err != nil && !ambiguous {
		return false, err
	}
	if other != nil || ambiguous {
		s.audit(ctx, decidedRotationRefused, host, "reason", "KeyInUse")
		return false, errBadRequest("The new key can't be used")
	}
	return false, nil
}
