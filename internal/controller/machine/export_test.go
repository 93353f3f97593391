package machine

import "github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"

// AddIndexes registers the indexes that the reconciler uses.
var AddIndexes = addIndexes

// HostHandler returns the handler of ElementalHost events.
var HostHandler = (*Reconciler).hostHandler

// KeepFreeHosts makes the reconciler maintain an index of free hosts, as in a manager.
func KeepFreeHosts(r *Reconciler) { r.freeHosts = placement.NewCandidates() }

// WaitlistLen returns the number of machines that wait for a host.
func WaitlistLen(r *Reconciler) int { return len(r.waiting.machines) }
