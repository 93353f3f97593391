// Package machine reconciles ElementalMachines: it claims a host, watches the
// agent bootstrap it, and releases it.
//
// A claim takes two writes. First the choice is recorded on the machine
// (spec.hostRef, with a new claim ID), then the host is bound to that ID
// (spec.claim, internal/claim). The host is the authority. A crash between the
// two is mended by the next reconcile, which finds the choice and binds it, or
// finds the host taken and chooses again. Every write to a spec carries the
// resourceVersion it was decided on, so that a stale cache or a deposed manager
// loses.
package machine
