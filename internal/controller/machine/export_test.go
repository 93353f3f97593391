package machine

import "github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"

// AddIndexes lets tests list as the manager does.
var AddIndexes = addIndexes

// HostHandler is what hears of changes to hosts.
var HostHandler = (*Reconciler).hostHandler

// KeepOffers has a reconciler keep the hosts that may be had, as in a manager.
func KeepOffers(r *Reconciler) { r.offers = placement.NewPool() }

// Waiting counts the machines that look for a host.
func Waiting(r *Reconciler) int { return len(r.waiting.machines) }
