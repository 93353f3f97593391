package server

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

const (
	// pendingRetry is when a host that would be one too many may ask again: somebody
	// has to act first.
	pendingRetry = 5 * time.Minute
	// tooManyPending is the reason of the Event on the registration.
	tooManyPending = "TooManyPendingHosts"
)

// pendingHosts counts pending hosts, those that are about to be created included.
type pendingHosts struct {
	hosts *hosts

	mu       sync.Mutex
	underway map[pendingKey]int
}

// pendingKey is a namespace and a value of index.PendingHost.
type pendingKey struct{ namespace, value string }

// add counts a host that is about to be created, if there is room below the
// limit. Afterwards, release has to be called: the host is known then, or was not
// created.
func (p *pendingHosts) add(ctx context.Context, key pendingKey, limit int32) (release func(), ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, err := p.hosts.find(ctx, index.PendingHost, key.value, func(host *infrav1.ElementalHost) bool {
		return host.Namespace == key.namespace && slices.Contains(index.PendingHosts(host), key.value)
	})
	if err != nil {
		return nil, false, err
	}
	if len(found)+p.underway[key] >= int(limit) {
		return nil, false, nil
	}
	p.underway[key]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.underway[key]--; p.underway[key] == 0 {
			delete(p.underway, key)
		}
	}, true, nil
}

// reserve counts a host that is about to be created against the limits of pending
// hosts: that of its registration and, if it was adopted again, the highest of
// the registrations that allowed it. Release has to be called afterwards, in any
// case.
func (s *Server) reserve(ctx context.Context, host *infrav1.ElementalHost, registrations ...*infrav1.ElementalRegistration) (release func(), err error) {
	var releases []func()
	release = func() {
		for _, f := range releases {
			f()
		}
	}
	for _, value := range index.PendingHosts(host) {
		limit, of := int32(0), registrations[0]
		for _, r := range registrations {
			if r.Spec.MaxPendingHosts > limit {
				limit, of = r.Spec.MaxPendingHosts, r
			}
		}
		f, ok, err := s.pending.add(ctx, pendingKey{host.Namespace, value}, limit)
		if err == nil && !ok {
			err = s.tooManyPending(ctx, of)
		}
		if err != nil {
			release()
			return func() {}, err
		}
		releases = append(releases, f)
	}
	return release, nil
}

// tooManyPending tells people, once in a while, and the host.
func (s *Server) tooManyPending(ctx context.Context, registration *infrav1.ElementalRegistration) error {
	limit := registration.Spec.MaxPendingHosts
	if s.auditOften(ctx, decidedPendingLimit, string(registration.UID), nil, "ElementalRegistration", klog.KObj(registration), "maxPendingHosts", limit) {
		s.hosts.recorder.Eventf(registration, nil, corev1.EventTypeWarning, tooManyPending, "Enrol",
			"A host was refused: %d hosts wait for approval already. Approve or delete some, or raise spec.maxPendingHosts", limit)
	}
	return &refusal{reason: tooManyPending, answer: errTooMany(pendingRetry)}
}
