package agent

import (
	"context"
	"log/slog"
	"reflect"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/lookup"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// observer observes the host and updates the facts. It reports nothing. A fact that
// cannot be observed keeps its value.
type observer struct {
	platform platform.Platform
	manager  *connection.Manager
	facts    *facts
	// certificates reads the control plane's certificates; nil: nothing is reported of them.
	certificates func() []protocol.CertificateFacts
	log          *slog.Logger
	// starting looks again soon while the host may only be starting.
	starting *preflight.Watch

	inventories, kubernetes, preflights, certificateReads, addresses, cleanliness lookup.Order
}

func (o *observer) observeAll(ctx context.Context) {
	o.observeTrust()
	o.observeInventory(ctx)
	o.observeKubernetes(ctx)
	o.observePreflight(ctx)
	o.observeCertificates()
	o.observeAddresses(ctx)
	o.observeCleanliness(ctx)
}

func (o *observer) observeInventory(ctx context.Context) {
	number := o.inventories.Begin()
	inventory, err := o.platform.Inventory(ctx)
	if err != nil {
		o.log.Error("Could not take the inventory", "error", err)
		return
	}
	inventory.Disks = inventory.Disks[:min(len(inventory.Disks), protocol.MaxDevices)]
	inventory.NICs = inventory.NICs[:min(len(inventory.NICs), protocol.MaxDevices)]
	o.facts.update(func(f *observation) {
		if o.inventories.Record(number) {
			inventory.Kubernetes, inventory.Preflight = f.inventory.Kubernetes, f.inventory.Preflight
			f.inventory = inventory
		}
	})
}

// observeCertificates reports whether the control plane's certificates changed.
func (o *observer) observeCertificates() (changed bool) {
	if o.certificates == nil {
		return false
	}
	number := o.certificateReads.Begin()
	found := &protocol.CertificateReport{Certificates: o.certificates()}
	o.facts.update(func(f *observation) {
		if o.certificateReads.Record(number) && !reflect.DeepEqual(f.certificates, found) {
			f.certificates, changed = found, true
		}
	})
	return changed
}

// observeKubernetes reports whether the programs of Kubernetes changed.
func (o *observer) observeKubernetes(ctx context.Context) (changed bool) {
	return observe(ctx, o, &o.kubernetes, o.platform.Kubernetes, func(i *protocol.Inventory) **protocol.Kubernetes { return &i.Kubernetes })
}

// observePreflight reports whether the facts of the preflight changed.
func (o *observer) observePreflight(ctx context.Context) (changed bool) {
	changed = observe(ctx, o, &o.preflights, o.platform.Preflight, func(i *protocol.Inventory) **protocol.Preflight { return &i.Preflight })
	o.starting.Found(o.facts.current().inventory)
	return changed
}

// observe looks up a part of the inventory, and reports whether it changed.
func observe[T any](
	ctx context.Context, o *observer, order *lookup.Order, look func(context.Context) (T, error), part func(*protocol.Inventory) **T,
) (changed bool) {
	number := order.Begin()
	found, err := look(ctx)
	if err != nil {
		o.log.Error("Could not look for what Kubernetes needs", "error", err)
		return false
	}
	o.facts.update(func(f *observation) {
		if known := part(&f.inventory); order.Record(number) {
			changed = *known == nil || !reflect.DeepEqual(**known, found)
			*known = &found
		}
	})
	return changed
}

func (o *observer) observeTrust() {
	o.facts.update(func(f *observation) { f.trustDigest = o.manager.TrustDigest() })
}

// observeAddresses reports whether the addresses changed.
func (o *observer) observeAddresses(ctx context.Context) (changed bool) {
	number := o.addresses.Begin()
	addresses, err := o.platform.Addresses(ctx)
	if err != nil {
		o.log.Error("Could not look up the addresses", "error", err)
		return false
	}
	addresses = addresses[:min(len(addresses), protocol.MaxDevices)]
	o.facts.update(func(f *observation) {
		if !o.addresses.Record(number) {
			return
		}
		changed = !slices.Equal(f.addresses, addresses)
		f.addresses = addresses
	})
	return changed
}

// observeCleanliness treats a host that cannot be examined as not clean.
func (o *observer) observeCleanliness(ctx context.Context) {
	number := o.cleanliness.Begin()
	found, err := o.platform.Cleanliness(ctx)
	if err != nil {
		o.log.Error("Could not look for leftovers", "error", err)
		found = protocol.Cleanliness{Leftovers: []string{"unknown: " + err.Error()}}
	}
	found.Leftovers = found.Leftovers[:min(len(found.Leftovers), protocol.MaxLeftovers)]
	o.facts.update(func(f *observation) {
		if o.cleanliness.Record(number) {
			f.cleanliness = found
		}
	})
}
