package api

import (
	"net/http"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/enrol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
)

// maxTokenHeader bounds the Authorization header, in bytes; a token is far shorter.
const maxTokenHeader = 512

// enrol answers with the key's host.
func (h *Handler) enrol(w http.ResponseWriter, r *http.Request, from caller) error {
	who := enrol.Caller{Fingerprint: from.fingerprint, Token: bearer(r), Source: ratelimit.SourceOf(r.RemoteAddr)}
	if err := h.enroller.Pace(r.Context(), who); err != nil {
		return err
	}
	request, err := decode[protocol.EnrolRequest](w, r)
	if err != nil {
		return err
	}
	who.Request = &request
	host, err := h.enroller.Enrol(r.Context(), who)
	if err != nil {
		return err
	}
	h.connections.SetAuthenticated(r.Context(), true)
	home := client.ObjectKeyFromObject(host)
	if from := host.Spec.GrantedFrom; from != nil {
		// The pool's object outlives each grant, and leads to where the host is.
		home = client.ObjectKey{Namespace: from.Namespace, Name: from.Name}
	}
	return writeJSON(w, protocol.EnrolResponse{
		HostID:     host.Spec.HostID,
		Namespace:  home.Namespace,
		Name:       home.Name,
		Approved:   host.Spec.Approval == infrav1.ApprovalApproved,
		Generation: max(host.Spec.Identity.Generation, 1),
		ServerTime: h.clock.Now().UTC(),
	})
}

// bearer returns the registration token of an HTTP request, or an empty string.
func bearer(r *http.Request) string {
	header := r.Header.Get("Authorization")
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || len(header) > maxTokenHeader {
		return ""
	}
	return strings.TrimSpace(token)
}
