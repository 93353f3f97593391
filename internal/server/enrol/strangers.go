package enrol

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// strangersPerSecond and strangersBurst limit the enrolments of all strangers. Each may
	// become a host, which costs the API server as much as twenty changed plans.
	strangersPerSecond = 10
	strangersBurst     = 100
	// strangerRetry is the earliest retry of a stranger. Agents add a random delay of up to
	// the same length.
	strangerRetry = 15 * time.Second
)

// Pace returns a problem if the caller has to come back later: it is a stranger, whom neither
// its key nor a token invites, and too many of them enrol. It is called before the request is
// read, so caller.Request is nil. Invited callers never wait for strangers here.
func (e *Enroller) Pace(ctx context.Context, caller Caller) error {
	invited, err := e.isInvited(ctx, caller)
	if err != nil || invited || e.strangers.Allow(caller.Source) {
		return err
	}
	e.enrolments.WithLabelValues("deferred").Inc()
	return problem.Busy(strangerRetry)
}

// isInvited reports whether a host has the caller's key, its token can be used, or a host is
// declared for its key. It reads the cache only.
func (e *Enroller) isInvited(ctx context.Context, caller Caller) (bool, error) {
	host, _, err := e.hosts.ByKey(ctx, caller.Fingerprint, types.NamespacedName{})
	if host != nil || errors.Is(err, hoststore.ErrAmbiguousKey) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = e.resolveToken(ctx, caller.Token)
	if _, refused := errors.AsType[*refusal](err); !refused {
		return err == nil, err
	}
	declared, err := e.hosts.Find(ctx, index.HostByMatchedKey, caller.Fingerprint, func(host *infrav1.ElementalHost) bool {
		return host.Spec.Identity != nil && host.Spec.Identity.Match != nil && host.Spec.Identity.Match.KeyFingerprint == caller.Fingerprint
	})
	return len(declared) > 0, err
}
