package api

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/session"
)

// minPoll is the shortest time after which a poll without a new plan ends. Polls of a fleet
// that begin at the same time end spread over two minutes.
const minPoll = protocol.PollTimeout - 2*time.Minute

// plan is the long poll. It answers when the revision of the host's plan differs from the
// one the host has, or when the host is asked for a report. After each event it
// authenticates the key again and reads the host again. While it waits it must refer to
// nothing large: ten thousand polls wait at a time.
func (h *Handler) plan(w http.ResponseWriter, r *http.Request, from caller) error {
	after, err := parameter(r, "after")
	if err != nil {
		return err
	}
	boot, err := parameter(r, "boot")
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(from.host)
	if after, ok := h.sessions.AllowPoll(key); !ok {
		return problem.TooManyRequests(after)
	}
	// Computed before the poll is open, so that opening it does not delay the end.
	end := h.clock.Now().Add(minPoll + rand.N(protocol.PollTimeout-minPoll)) //nolint:gosec // no secret
	open, verdict := h.sessions.Open(key, boot)
	switch verdict {
	case session.BootOverlaps:
		return problem.Busy(session.BootGrace)
	case session.BootReturned:
		return h.trust.LockReturnedBoot(r.Context(), from.host, from.fingerprint)
	case session.BootMissing:
		return problem.BadRequest("The request has no boot ID, but an earlier one had")
	case session.BootAccepted:
	}
	h.tunnels.Review(r.Context(), key) // one of another boot ends
	from.host = nil
	defer h.sessions.Close(key, open)
	defer h.timers.Cancel(h.timers.At(end, open.Expire))
	for {
		isAsked := open.TakeQuestion()
		if isAsked {
			after = "" // the host gets its plan with the question
		}
		p, err := h.changedPlan(r.Context(), from.fingerprint, key, after)
		if err != nil {
			return err
		}
		if p != nil {
			p.ReportEndpoint = isAsked
			return writeJSON(w, p)
		}
		select {
		case <-open.Woken():
			if open.Expired() {
				w.WriteHeader(http.StatusNoContent)
				return nil
			}
		case <-h.draining:
			return problem.Draining()
		case <-r.Context().Done():
			return nil
		}
	}
}

// changedPlan returns the host's plan, or nil if its revision is the given one. It returns a
// problem if the key no longer belongs to the host.
func (h *Handler) changedPlan(ctx context.Context, fingerprint string, key types.NamespacedName, after string) (*protocol.Plan, error) {
	host, err := h.trust.Authenticate(ctx, fingerprint, key, true)
	if err != nil {
		return nil, err
	}
	if host.IsGrantedFrom(key) {
		return nil, problem.Busy(time.Second) // the agent asks again, and is this host then
	}
	if client.ObjectKeyFromObject(host) != key {
		return nil, problem.UnknownHost()
	}
	if host.Spec.Approval == infrav1.ApprovalApproved && h.sessions.TakeFactsCut(key) {
		// After an error the host reports everything again, and now there is room for it.
		return nil, problem.Busy(time.Second)
	}
	site, err := h.planInputs.Site(ctx, host)
	if err != nil {
		return nil, err
	}
	cluster, err := h.planInputs.Cluster(ctx, host)
	if err != nil {
		return nil, err
	}
	inputs := session.PlanInputsOf(host, site, cluster)
	if after != "" && h.sessions.PlanRevision(key, inputs) == after {
		return nil, nil
	}
	p := plan.For(host, site, cluster)
	h.sessions.SetPlanRevision(key, inputs, p.Revision)
	if p.Revision == after {
		return nil, nil
	}
	p.ServerTime = h.clock.Now().UTC()
	return &p, nil
}
