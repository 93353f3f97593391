package server

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// rotate replaces the key of the connection it arrives on. The generation is
// compared and swapped, so of two copies of a host only one goes on, and the
// other is found out.
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
		audit(r, "key rotation refused", who.host, "reason", "the new key is not proven")
		return errBadRequest("The new key's possession is not proven")
	}
	before, err := s.hosts.read(r.Context(), key)
	if err != nil {
		return err
	}
	if !holds(before, who.fingerprint) {
		return errUnknownHost()
	}
	if generation := max(before.Spec.Identity.Generation, 1); in.Generation != generation {
		audit(r, "key rotation refused", before, "reason", "stale generation", "generation", generation, "claimed", in.Generation)
		return errStaleGeneration()
	}
	other, err := s.hosts.byKey(r.Context(), fingerprint)
	if err != nil {
		return err
	}
	if other != nil {
		audit(r, "key rotation refused", before, "reason", "the new key is in use")
		return errBadRequest("The new key can't be used")
	}
	after := before.DeepCopy()
	after.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: fingerprint, Generation: in.Generation + 1}
	err = s.client.Patch(r.Context(), after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return errBusy(time.Second)
	}
	if apierrors.IsNotFound(err) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("writing new key: %w", err)
	}
	s.hosts.remember(after)
	audit(r, "key rotated", after, "keyFingerprint", fingerprint, "generation", after.Spec.Identity.Generation)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
