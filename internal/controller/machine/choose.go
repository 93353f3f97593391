package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// chooser chooses a host for a machine. It writes no objects; it changes the waitlist,
// the nominations, the cached explanations and the scope.
type chooser struct {
	client       client.Reader
	clock        clock.PassiveClock
	selectors    *selector.Compiler
	nominations  *placement.Nominations
	watchFilter  string
	freeHosts    *placement.Candidates
	waiting      *waitlist
	explanations *explanationCache
}

func (r *Reconciler) chooser() *chooser {
	return &chooser{
		client: r.Client, clock: r.Clock, selectors: r.Selectors, nominations: r.Nominations, watchFilter: r.WatchFilter,
		freeHosts: r.freeHosts, waiting: &r.waiting, explanations: &r.explanations,
	}
}

// choose picks an available host and nominates it, so that this manager's other
// workers pick other hosts. release removes the nomination. Without an available
// host it returns nil and sets s.noHost; s.noHost stays blank if the available hosts
// are nominated for other machines.
//
// The machine joins the waitlist before hosts are read, so that a host that becomes
// free in the meantime wakes it.
func (c *chooser) choose(ctx context.Context, s *scope) (_ *infrav1.ElementalHost, release func(), _ error) {
	constraints := wanted(s).Constraints(ctx, c.selectors)
	key := constraintsKey(s, constraints)
	c.waiting.add(s.machine, key)
	s.waiting = true
	if c.freeHosts != nil && wanted(s).RequiredHost() == "" && constraints.Adoption == nil {
		return c.chooseFree(ctx, s, constraints, key)
	}
	hosts, err := c.hostsFor(ctx, s, constraints)
	if err != nil || s.noHost != "" {
		return nil, nil, err
	}
	constraints = constraints.Among(hosts)
	if host := c.nominations.Pick(c.clock.Now(), constraints, hosts); host != nil {
		return host.DeepCopy(), func() { c.nominations.Remove(host) }, nil
	}
	if constraints.Pick(hosts) != nil {
		return nil, nil, nil
	}
	return nil, nil, c.explain(ctx, s, constraints, key)
}

// chooseFree is choose for a machine that may have any free host. It reads from
// freeHosts, and so does not list all hosts.
func (c *chooser) chooseFree(ctx context.Context, s *scope, constraints placement.Constraints, key string) (_ *infrav1.ElementalHost, release func(), _ error) {
	var host *infrav1.ElementalHost
	var failed error
	nominated := false
	c.freeHosts.Pick(s.machine.Namespace, constraints, func(candidate *infrav1.ElementalHost) bool {
		if !c.nominations.Nominate(c.clock.Now(), candidate) {
			nominated = true
			return false
		}
		// The cache is newer than the events that fill freeHosts.
		current := &infrav1.ElementalHost{}
		err := c.client.Get(ctx, client.ObjectKeyFromObject(candidate), current)
		if err == nil && reconcile.IsWatched(current, c.watchFilter) && isFree(constraints, current) {
			host = current
			return true
		}
		if client.IgnoreNotFound(err) != nil {
			failed = err
		}
		c.nominations.Remove(candidate)
		return false
	})
	switch {
	case host != nil:
		return host, func() { c.nominations.Remove(host) }, nil
	case failed != nil:
		return nil, nil, fmt.Errorf("getting a free host: %w", failed)
	case nominated:
		return nil, nil, nil
	}
	return nil, nil, c.explain(ctx, s, constraints, key)
}

// hostsFor returns the hosts that the machine may have. If the endpoint is a host's
// address, the first control-plane machine must have that host: on another host
// nothing would answer at the endpoint. Then hostsFor may set s.noHost.
func (c *chooser) hostsFor(ctx context.Context, s *scope, constraints placement.Constraints) ([]*infrav1.ElementalHost, error) {
	required := wanted(s).RequiredHost()
	if required == "" {
		return c.list(ctx, s, index.Free)
	}
	own, err := c.list(ctx, s, s.cluster.Name)
	if err != nil {
		return nil, err
	}
	for _, host := range own {
		if host.Name != required {
			continue
		}
		if host.Spec.Claim.Phase == infrav1.ClaimBound {
			return c.list(ctx, s, index.Free)
		}
		reason, ok := constraints.Available(host)
		if ok {
			return []*infrav1.ElementalHost{host}, nil
		}
		s.noHost = fmt.Sprintf("Host %s, whose address is the cluster's endpoint, can't be used now: %s", host.Name, reason)
		return nil, nil
	}
	s.noHost = fmt.Sprintf("Host %s, whose address is the cluster's endpoint, is not yet reserved for the cluster", required)
	return nil, nil
}

// list returns the hosts that are claimed for the cluster, or the free ones for
// index.Free. Callers must not change them.
func (c *chooser) list(ctx context.Context, s *scope, clusterName string) ([]*infrav1.ElementalHost, error) {
	return reconcile.ListHosts(ctx, c.client, s.machine.Namespace, c.watchFilter, client.MatchingFields{index.HostByCluster: clusterName})
}

// wanted returns the machine with the objects that say which host it may have.
func wanted(s *scope) placement.Machine {
	return placement.Machine{Machine: s.machine, Owner: s.owner, Cluster: s.cluster, InfraCluster: s.infraCluster, Release: s.release}
}

// isFree reports whether the host meets the constraints and is unclaimed.
func isFree(constraints placement.Constraints, host *infrav1.ElementalHost) bool {
	if host.Spec.Claim != nil {
		return false
	}
	_, available := constraints.Available(host)
	return available
}

// explanationTTL is how long machines with the same constraints get the same
// message. Otherwise a thousand waiting machines would evaluate all hosts a thousand
// times.
const explanationTTL = time.Second

// maxExplanations bounds explanationCache.
const maxExplanations = 1000

// explanationCache caches the messages why no host is available, by constraints. The
// zero value is ready to use, by several goroutines.
type explanationCache struct {
	mu    sync.Mutex
	byKey map[string]explanation
}

type explanation struct {
	text string
	// elsewhere are the other failure domains with a host that could be claimed.
	elsewhere []string
	at        time.Time
}

// explain sets s.noHost to the message why no host is available, and s.elsewhere. Both
// stay blank if a host is available by now.
func (c *chooser) explain(ctx context.Context, s *scope, constraints placement.Constraints, key string) error {
	key = s.machine.Namespace + " " + key
	now := c.clock.Now()
	if known, ok := c.explanations.get(key, now); ok && c.freeHosts != nil {
		s.noHost, s.elsewhere = known.text, known.elsewhere
		return nil
	}
	all, err := reconcile.ListHosts(ctx, c.client, s.machine.Namespace, c.watchFilter)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(host *infrav1.ElementalHost) bool { return isFree(constraints, host) }) {
		return nil
	}
	s.noHost, s.elsewhere = constraints.Explain(all), domainsWithHost(ctx, constraints, all)
	c.explanations.put(key, explanation{s.noHost, s.elsewhere, now})
	return nil
}

// domainsWithHost returns the failure domains other than the required one with a free
// host that meets all other constraints, sorted; none if no failure domain is required.
func domainsWithHost(ctx context.Context, constraints placement.Constraints, hosts []*infrav1.ElementalHost) []string {
	if constraints.FailureDomain == "" {
		return nil
	}
	anywhere := constraints.WithContext(ctx)
	anywhere.FailureDomain = ""
	found := map[string]bool{}
	for _, host := range hosts {
		domain := host.Labels[constraints.FailureDomainLabel]
		if domain != "" && domain != constraints.FailureDomain && !found[domain] && isFree(anywhere, host) {
			found[domain] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (c *explanationCache) get(key string, now time.Time) (explanation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.byKey[key]
	return found, ok && now.Sub(found.at) < explanationTTL
}

func (c *explanationCache) put(key string, is explanation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil || len(c.byKey) >= maxExplanations {
		c.byKey = map[string]explanation{}
	}
	c.byKey[key] = is
}
