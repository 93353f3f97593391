package agent

import (
	"context"
	"log/slog"
	"slices"

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
}

func (o *observer) observeAll(ctx context.Context) {
	o.observeTrust()
	if inventory, err := o.platform.Inventory(ctx); err != nil {
		o.log.Error("Could not take the inventory", "error", err)
	} else {
		inventory.Disks = inventory.Disks[:min(len(inventory.Disks), protocol.MaxDevices)]
		inventory.NICs = inventory.NICs[:min(len(inventory.NICs), protocol.MaxDevices)]
		o.facts.update(func(f *observation) { f.inventory = inventory })
	}
	o.observeAddresses(ctx)
	o.observeCleanliness(ctx)
}

func (o *observer) observeTrust() {
	digest := o.manager.TrustDigest()
	o.facts.update(func(f *observation) { f.trustDigest = digest })
}

// observeAddresses reports whether the addresses changed.
func (o *observer) observeAddresses(ctx context.Context) (changed bool) {
	addresses, err := o.platform.Addresses(ctx)
	if err != nil {
		o.log.Error("Could not look up the addresses", "error", err)
		return false
	}
	addresses = addresses[:min(len(addresses), protocol.MaxDevices)]
	o.facts.update(func(f *observation) {
		changed = !slices.Equal(f.addresses, addresses)
		f.addresses = addresses
	})
	return changed
}

// observeCleanliness treats a host that cannot be examined as not clean.
func (o *observer) observeCleanliness(ctx context.Context) {
	found, err := o.platform.Cleanliness(ctx)
	if err != nil {
		o.log.Error("Could not look for leftovers", "error", err)
		found = protocol.Cleanliness{Leftovers: []string{"unknown: " + err.Error()}}
	}
	found.Leftovers = found.Leftovers[:min(len(found.Leftovers), protocol.MaxLeftovers)]
	o.facts.update(func(f *observation) { f.cleanliness = found })
}
