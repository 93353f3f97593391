// Package reconcile holds what several reconcilers do in the same way: writing spec
// and status, pausing, requeueing after a conflict, and reading the hosts of a
// namespace. It knows nothing of the reconcilers that call it and keeps no state.
//
// Cluster API's helpers do not serve everywhere. util/patch writes conditions, spec
// and status in up to three requests and sets no optimistic lock; here a reconcile
// writes status at most once. util/paused writes the Paused condition in a request
// of its own, and util/conditions takes the time from the wall clock.
package reconcile
