// Package machine reconciles ElementalMachines: it claims a host, observes its bootstrap,
// and releases it.
//
// A claim takes two writes. The first records the choice on the machine (spec.hostRef,
// with a new claim ID). The second binds the host to that ID (spec.claim, package claim).
// The host is the authority. After a crash between the two, the next reconcile finds the
// recorded choice and binds the host, or finds that the host is taken and chooses again.
// Every write to a spec has an optimistic lock, so that a write based on a stale cache, or
// by a manager that lost leadership, fails.
package machine
