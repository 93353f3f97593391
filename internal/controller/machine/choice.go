package machine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// choose picks a free host and nominates it, so that this manager's other
// workers look for another. release gives the nomination back. It returns nil
// where there is none: s.noHost then says why, unless it is only that others
// are just claiming those that suit. The machine waits from before the first look
// at hosts, so that one that comes free in between wakes it.
func (r *Reconciler) choose(ctx context.Context, s *scope) (_ *infrav1.ElementalHost, release func(), _ error) {
	request := r.requestFor(ctx, s)
	what := asks(s, request)
	r.waiting.add(s.machine, what)
	s.waits = true
	if r.offers != nil && firstHost(s) == "" {
		return r.chooseOffered(ctx, s, request, what)
	}
	candidates, err := r.candidates(ctx, s, request)
	if err != nil || s.noHost != "" {
		return nil, nil, err
	}
	if host := r.Nominations.Pick(r.Clock.Now(), request, candidates); host != nil {
		return host.DeepCopy(), func() { r.Nominations.Drop(host) }, nil
	}
	if request.Pick(candidates) != nil {
		return nil, nil, nil
	}
	s.noHost, err = r.explain(ctx, s, request, what)
	return nil, nil, err
}

// chooseOffered is choose among hosts that are offered to all, without a look at
// others.
func (r *Reconciler) chooseOffered(ctx context.Context, s *scope, request placement.Request, what string) (_ *infrav1.ElementalHost, release func(), _ error) {
	var host *infrav1.ElementalHost
	var failed error
	nominated := false
	r.offers.Pick(s.machine.Namespace, request, func(offered *infrav1.ElementalHost) bool {
		if !r.Nominations.Take(r.Clock.Now(), offered) {
			nominated = true
			return false
		}
		// The cache is ahead of the events that fill the pool.
		is := &infrav1.ElementalHost{}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(offered), is)
		if err == nil && r.watches(is) && free(request, is) {
			host = is
			return true
		}
		if client.IgnoreNotFound(err) != nil {
			failed = err
		}
		r.Nominations.Drop(offered)
		return false
	})
	switch {
	case host != nil:
		return host, func() { r.Nominations.Drop(host) }, nil
	case failed != nil:
		return nil, nil, fmt.Errorf("getting a host that is offered: %w", failed)
	case nominated:
		return nil, nil, nil
	}
	var err error
	s.noHost, err = r.explain(ctx, s, request, what)
	return nil, nil, err
}

// free reports whether the request can have the host, which nobody has claimed.
func free(request placement.Request, host *infrav1.ElementalHost) bool {
	_, suits := request.Suits(host)
	return suits && host.Spec.Claim == nil
}

// watches reports whether the host or machine is one that this manager hears of.
func (r *Reconciler) watches(o client.Object) bool {
	return r.WatchFilter == "" || labels.HasWatchLabel(o, r.WatchFilter)
}

// explanationTTL is how long machines that ask for the same are told the same: a
// thousand of them that wait would else have all hosts looked at a thousand times.
const explanationTTL = time.Second

// maxExplanations bounds what is remembered for that.
const maxExplanations = 1000

// explanations remembers why requests found no host. The zero value is ready to use.
type explanations struct {
	mu   sync.Mutex
	said map[string]explanation
}

type explanation struct {
	text string
	at   time.Time
}

// explain says why the request finds no host; nothing if it could by now.
func (r *Reconciler) explain(ctx context.Context, s *scope, request placement.Request, what string) (string, error) {
	key := s.machine.Namespace + " " + what
	now := r.Clock.Now()
	if text, ok := r.explanations.get(key, now); ok && r.offers != nil {
		return text, nil
	}
	all, err := r.list(ctx, s, "")
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(all, func(host *infrav1.ElementalHost) bool { return free(request, host) }) {
		return "", nil
	}
	text := request.Explain(all)
	r.explanations.put(key, text, now)
	return text, nil
}

func (e *explanations) get(key string, now time.Time) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	is, ok := e.said[key]
	return is.text, ok && now.Sub(is.at) < explanationTTL
}

func (e *explanations) put(key, text string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.said == nil || len(e.said) >= maxExplanations {
		e.said = map[string]explanation{}
	}
	e.said[key] = explanation{text, now}
}
