package agent

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// observation is what the host looks like.
type observation struct {
	inventory   protocol.Inventory
	addresses   []protocol.Address
	cleanliness protocol.Cleanliness
	// trust names the roots in use.
	trust    string
	endpoint endpointFact
}

// facts are the latest observation and what the manager knows of it.
type facts struct {
	mu   sync.Mutex
	seen observation
	// told is what the manager acknowledged, nil when it knows nothing.
	told *observation
}

func (f *facts) current() observation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

func (f *facts) update(change func(*observation)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.seen)
}

// forget makes everything be told again.
func (f *facts) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = nil
}

// acknowledge remembers what the manager knows now.
func (f *facts) acknowledge(told observation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = &told
}

// news fills a report with what the manager doesn't know, and returns what it
// will know afterwards. introduce is true when the host is to say again what it
// is. now is when the report is made.
func (f *facts) news(report *protocol.Report, now time.Time) (next observation, introduce bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next = f.seen
	if f.told == nil || !reflect.DeepEqual(f.told.inventory, next.inventory) {
		report.Inventory = &next.inventory
	}
	if f.told == nil || !slices.Equal(f.told.addresses, next.addresses) {
		report.Addresses = next.addresses
	}
	if f.told == nil || !reflect.DeepEqual(f.told.cleanliness, next.cleanliness) {
		report.Cleanliness = &next.cleanliness
	}
	switch {
	case !next.endpoint.known():
		next.endpoint = endpointFact{}
		if f.told != nil {
			next.endpoint = f.told.endpoint
		}
	case f.told == nil || !reflect.DeepEqual(f.told.endpoint, next.endpoint):
		report.Endpoint = next.endpoint.report(now)
	}
	return next, f.told == nil || f.told.trust != next.trust
}

// observe looks at everything. What cannot be found out stays as it was.
func (a *Agent) observe(ctx context.Context) {
	a.observeTrust()
	if inventory, err := a.Observer.Inventory(ctx); err != nil {
		a.Log.Error("Could not take the inventory", "error", err)
	} else {
		inventory.Disks = inventory.Disks[:min(len(inventory.Disks), protocol.MaxDevices)]
		inventory.NICs = inventory.NICs[:min(len(inventory.NICs), protocol.MaxDevices)]
		a.facts.update(func(o *observation) { o.inventory = inventory })
	}
	a.observeAddresses(ctx)
	a.observeCleanliness(ctx)
}

// observeTrust has the manager told when other roots are in use.
func (a *Agent) observeTrust() {
	digest := a.Link.TrustDigest()
	a.facts.update(func(o *observation) { o.trust = digest })
}

func (a *Agent) observeAddresses(ctx context.Context) {
	addresses, err := a.Observer.Addresses(ctx)
	if err != nil {
		a.Log.Error("Could not look up the addresses", "error", err)
		return
	}
	addresses = addresses[:min(len(addresses), protocol.MaxDevices)]
	a.facts.update(func(o *observation) { o.addresses = addresses })
}

// observeCleanliness reports a host that cannot be looked at as not clean.
func (a *Agent) observeCleanliness(ctx context.Context) protocol.Cleanliness {
	found, err := a.Observer.Cleanliness(ctx)
	if err != nil {
		a.Log.Error("Could not look for leftovers", "error", err)
		found = protocol.Cleanliness{Leftovers: []string{"unknown: " + err.Error()}}
	}
	found.Leftovers = found.Leftovers[:min(len(found.Leftovers), protocol.MaxLeftovers)]
	a.facts.update(func(o *observation) { o.cleanliness = found })
	return found
}

// watch looks at the addresses again when the kernel says they changed.
func (a *Agent) watch(ctx context.Context) error {
	if a.Watcher == nil {
		return nil
	}
	err := a.Watcher.WatchAddresses(ctx, func() {
		before := a.facts.current().addresses
		a.observeAddresses(ctx)
		if slices.Equal(before, a.facts.current().addresses) {
			// A route or a link: worth an attempt by a host that has no connection.
			signal(a.network)
			return
		}
		a.networkChanged()
		signal(a.report)
	})
	if err != nil && ctx.Err() == nil {
		a.Log.Warn("Changes of addresses will only be noticed at the next start", "error", err)
	}
	return nil
}
