package api

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
)

// emptyReport is the most bytes that a report without facts has.
const emptyReport = int64(len("{}\n"))

// report answers when the reported facts are durable.
func (h *Handler) report(w http.ResponseWriter, r *http.Request, from caller) error {
	key := client.ObjectKeyFromObject(from.host)
	if after, ok := h.sessions.AllowRequest(key); !ok {
		return problem.TooManyRequests(after)
	}
	// A host asks by an empty report whether the managers know it, such as when it may follow a move. That
	// causes no write.
	if mayHaveFacts := r.ContentLength < 0 || r.ContentLength > emptyReport; mayHaveFacts {
		if after, ok := h.reports.AllowReport(from.host); !ok {
			return problem.TooManyRequests(after)
		}
	}
	begin := h.clock.Now()
	in, err := decode[protocol.Report](w, r)
	if err != nil {
		return err
	}
	if err := h.reports.RecordReport(r.Context(), key, from.fingerprint, &in); err != nil {
		return err
	}
	h.metrics.reportSeconds.Observe(h.clock.Since(begin).Seconds())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// rotate announces the next key of the host.
func (h *Handler) rotate(w http.ResponseWriter, r *http.Request, from caller) error {
	key := client.ObjectKeyFromObject(from.host)
	if after, ok := h.sessions.AllowRequest(key); !ok {
		return problem.TooManyRequests(after)
	}
	in, err := decode[protocol.RotateRequest](w, r)
	if err != nil {
		return err
	}
	// A rotation writes the host twice, and the API server stores it with its status.
	if after, ok := h.budget.Take(key, session.ClassOf(from.host), 2*hoststatus.Size(from.host)); !ok {
		return problem.TooManyRequests(after)
	}
	if err := h.trust.Rotate(r.Context(), from.host, from.fingerprint, in); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
