package agent

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// observer observes the host and updates the facts. It reports nothing. A fact that
// cannot be observed keeps its value.
type observer struct {
	platform platform.Platform
	manager  *connection.Manager
	facts    *facts
	log      *slog.Logger

	inventories, kubernetes, preflights, addresses, cleanliness lookups
}

// lookups orders concurrent look-ups of one fact. A slow look-up must not replace the
// result of one that began later.
type lookups struct {
	begun atomic.Int64
	// recorded is the latest look-up whose result is a fact. The facts' lock protects it.
	recorded int64
}

// begin returns the number of a look-up.
func (l *lookups) begin() int64 { return l.begun.Add(1) }

// record reports whether the result of a look-up is to be recorded. facts.update calls it.
func (l *lookups) record(lookup int64) bool {
	if lookup < l.recorded {
		return false
	}
	l.recorded = lookup
	return true
}

func (o *observer) observeAll(ctx context.Context) {
	o.observeTrust()
	o.observeInventory(ctx)
	o.observeKubernetes(ctx)
	o.observePreflight(ctx)
	o.observeAddresses(ctx)
	o.observeCleanliness(ctx)
}

func (o *observer) observeInventory(ctx context.Context) {
	lookup := o.inventories.begin()
	inventory, err := o.platform.Inventory(ctx)
	if err != nil {
		o.log.Error("Could not take the inventory", "error", err)
		return
	}
	inventory.Disks = inventory.Disks[:min(len(inventory.Disks), protocol.MaxDevices)]
	inventory.NICs = inventory.NICs[:min(len(inventory.NICs), protocol.MaxDevices)]
	o.facts.update(func(f *observation) {
		if o.inventories.record(lookup) {
			inventory.Kubernetes, inventory.Preflight = f.inventory.Kubernetes, f.inventory.Preflight
			f.inventory = inventory
		}
	})
}

// observeKubernetes reports whether the programs of Kubernetes changed.
func (o *observer) observeKubernetes(ctx context.Context) (changed bool) {
	lookup := o.kubernetes.begin()
	found, err := o.platform.Kubernetes(ctx)
	if err != nil {
		o.log.Error("Could not look for the programs of Kubernetes", "error", err)
		return false
	}
	o.facts.update(func(f *observation) {
		if !o.kubernetes.record(lookup) {
			return
		}
		changed = f.inventory.Kubernetes == nil || *f.inventory.Kubernetes != found
		f.inventory.Kubernetes = &found
	})
	return changed
}

// observePreflight reports whether the facts of the preflight changed.
func (o *observer) observePreflight(ctx context.Context) (changed bool) {
	lookup := o.preflights.begin()
	found, err := o.platform.Preflight(ctx)
	if err != nil {
		o.log.Error("Could not look for what Kubernetes needs", "error", err)
		return false
	}
	o.facts.update(func(f *observation) {
		if !o.preflights.record(lookup) {
			return
		}
		changed = f.inventory.Preflight == nil || !reflect.DeepEqual(*f.inventory.Preflight, found)
		f.inventory.Preflight = &found
	})
	return changed
}

func (o *observer) observeTrust() {
	o.facts.update(func(f *observation) { f.trustDigest = o.manager.TrustDigest() })
}

// observeAddresses reports whether the addresses changed.
func (o *observer) observeAddresses(ctx context.Context) (changed bool) {
	lookup := o.addresses.begin()
	addresses, err := o.platform.Addresses(ctx)
	if err != nil {
		o.log.Error("Could not look up the addresses", "error", err)
		return false
	}
	addresses = addresses[:min(len(addresses), protocol.MaxDevices)]
	o.facts.update(func(f *observation) {
		if !o.addresses.record(lookup) {
			return
		}
		changed = !slices.Equal(f.addresses, addresses)
		f.addresses = addresses
	})
	return changed
}

// observeCleanliness treats a host that cannot be examined as not clean.
func (o *observer) observeCleanliness(ctx context.Context) {
	lookup := o.cleanliness.begin()
	found, err := o.platform.Cleanliness(ctx)
	if err != nil {
		o.log.Error("Could not look for leftovers", "error", err)
		found = protocol.Cleanliness{Leftovers: []string{"unknown: " + err.Error()}}
	}
	found.Leftovers = found.Leftovers[:min(len(found.Leftovers), protocol.MaxLeftovers)]
	o.facts.update(func(f *observation) {
		if o.cleanliness.record(lookup) {
			f.cleanliness = found
		}
	})
}
