package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// maxDrainDelay spreads the return of all hosts after an orderly end.
const maxDrainDelay = 5 * time.Second

// minPoll is how long polls last at least. Those of a fleet that came within seconds
// end within two minutes.
const minPoll = protocol.PollTimeout - 2*time.Minute

// plan is the long-poll: it answers as soon as the plan's revision is not the
// one the host has. While it waits it holds next to nothing, and it looks at the
// host, and at whether the key still is the host's, after every event.
func (s *Server) plan(w http.ResponseWriter, r *http.Request, who caller) error {
	after, err := parameter(r, "after")
	if err != nil {
		return err
	}
	boot, err := parameter(r, "boot")
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(who.host)
	if after, ok := s.presence.allowPoll(key); !ok {
		return errTooMany(after)
	}
	// Before the poll shows, so that it ends in time however long that takes.
	end := s.clock.Now().Add(minPoll + rand.N(protocol.PollTimeout-minPoll)) //nolint:gosec // no secret
	open, verdict := s.presence.open(key, boot)
	switch verdict {
	case bootOverlaps:
		return errBusy(bootGrace)
	case bootReturned:
		return s.lock(r.Context(), who.host, who.fingerprint, "A boot of the host asked for its plan after a later boot had done so: two machines use the host's key",
			func(host *infrav1.ElementalHost) bool { return holds(host, who.fingerprint) })
	case bootFine:
	}
	who.host = nil
	defer s.presence.close(key, open)
	defer s.schedule.drop(s.schedule.at(end, open.expire))
	for {
		p, err := s.changedPlan(r.Context(), who.fingerprint, key, after)
		if err != nil {
			return err
		}
		if p != nil {
			return writeJSON(w, p)
		}
		select {
		case <-open.signal:
			if open.expired.Load() {
				w.WriteHeader(http.StatusNoContent)
				return nil
			}
		case <-s.draining:
			return errBusy(drainReturn())
		case <-r.Context().Done():
			return nil
		}
	}
}

// drainReturn is when a host may come back to the process that follows.
func drainReturn() time.Duration {
	return time.Second + rand.N(maxDrainDelay) //nolint:gosec // no secret
}

// changedPlan returns the host's plan, or nil if the host has it. The key must
// still be that host's.
func (s *Server) changedPlan(ctx context.Context, fingerprint string, key types.NamespacedName, after string) (*protocol.Plan, error) {
	host, err := s.authenticate(ctx, fingerprint, true)
	if err != nil {
		return nil, err
	}
	if client.ObjectKeyFromObject(host) != key {
		return nil, errUnknownHost()
	}
	site, err := s.site(ctx, host)
	if err != nil {
		return nil, err
	}
	cluster, err := s.cluster(ctx, host)
	if err != nil {
		return nil, err
	}
	from := plannedFrom(host, site, cluster)
	if after != "" && s.presence.revision(key, from) == after {
		return nil, nil //nolint:nilnil // documented
	}
	p := plan.For(host, site, cluster)
	s.presence.planMade(key, from, p.Revision)
	if p.Revision == after {
		return nil, nil //nolint:nilnil // documented
	}
	p.ServerTime = s.clock.Now().UTC()
	return &p, nil
}

// site is where the host's registration says the agent API is, and then where
// the manager says it is.
func (s *Server) site(ctx context.Context, host *infrav1.ElementalHost) (plan.Site, error) {
	bundle, err := s.authority.Bundle(ctx)
	if err != nil {
		return plan.Site{}, err
	}
	site := plan.Site{TrustBundle: bundle}
	var registration *infrav1.ElementalRegistration
	if ref := host.Spec.RegistrationRef; ref != nil {
		registration = &infrav1.ElementalRegistration{}
		err := s.client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: ref.Name}, registration, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return plan.Site{}, fmt.Errorf("getting registration: %w", err)
		}
		if apierrors.IsNotFound(err) {
			registration = nil
		}
	}
	if registration != nil {
		site.Agent = registration.Spec.Agent
	}
	for _, url := range []string{enrolment.URL(registration, s.url), enrolment.URL(nil, s.url)} {
		if url != "" && !slices.Contains(site.Servers, url) {
			site.Servers = append(site.Servers, url)
		}
	}
	return site, nil
}
