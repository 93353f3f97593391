package enrol

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

const (
	// pendingRetry is when a host that exceeds the limit may retry. It is long, because an
	// administrator has to act first.
	pendingRetry = 5 * time.Minute
	// tooManyPendingHosts is the reason of the Event on the registration.
	tooManyPendingHosts = "TooManyPendingHosts"
)

// pendingHosts counts pending hosts, including those that are being created.
type pendingHosts struct {
	hosts *hoststore.Store

	mu       sync.Mutex
	creating map[pendingKey]int
}

// pendingKey is a namespace and a value of index.PendingHost.
type pendingKey struct{ namespace, value string }

// reserve counts a host that is about to be created. ok is false if the limit is reached.
// release must be called after the creation, successful or not.
func (p *pendingHosts) reserve(ctx context.Context, key pendingKey, limit int32) (release func(), ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, err := p.hosts.Find(ctx, index.PendingHost, key.value, func(host *infrav1.ElementalHost) bool {
		return host.Namespace == key.namespace && slices.Contains(index.PendingHosts(host), key.value)
	})
	if err != nil {
		return nil, false, err
	}
	if len(found)+p.creating[key] >= int(limit) {
		return nil, false, nil
	}
	p.creating[key]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.creating[key]--; p.creating[key] == 0 {
			delete(p.creating, key)
		}
	}, true, nil
}

// reserve counts a host that is about to be created against the limit of pending hosts of
// its registration, or of the re-adopted hosts of its namespace: then value is
// index.ReadoptedHosts, and the highest limit of the registrations counts. A host that has a
// token never counts against the limit of re-adopted hosts, which anybody can use up.
// release must be called in any case.
func (e *Enroller) reserve(ctx context.Context, host *infrav1.ElementalHost, value string, registrations ...*infrav1.ElementalRegistration) (release func(), err error) {
	if host.Spec.Approval != infrav1.ApprovalPending {
		return func() {}, nil
	}
	limit, limiting := int32(0), registrations[0]
	for _, r := range registrations {
		if r.Spec.MaxPendingHosts > limit {
			limit, limiting = r.Spec.MaxPendingHosts, r
		}
	}
	release, ok, err := e.pending.reserve(ctx, pendingKey{host.Namespace, value}, limit)
	if err == nil && !ok {
		err = e.refusePending(ctx, limiting)
	}
	if err != nil {
		return func() {}, err
	}
	return release, nil
}

// refusePending records an Event on the registration, at most once in ten minutes, and
// returns the refusal of the host.
func (e *Enroller) refusePending(ctx context.Context, registration *infrav1.ElementalRegistration) error {
	limit := registration.Spec.MaxPendingHosts
	if e.audit.RecordRepeatable(ctx, audit.PendingLimit, string(registration.UID), nil, "ElementalRegistration", klog.KObj(registration), "maxPendingHosts", limit) {
		e.recorder.Eventf(registration, nil, corev1.EventTypeWarning, tooManyPendingHosts, "Enrol",
			"A host was refused: %d hosts wait for approval already. Approve or delete some, or raise spec.maxPendingHosts", limit)
	}
	return &refusal{reason: tooManyPendingHosts, answer: problem.TooManyRequests(pendingRetry)}
}
