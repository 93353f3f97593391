// Package fleet has the metrics of hosts and machines: how many are in which state, how long they
// stay in one, and how their operations end.
//
// Numbers of hosts and machines are counted from the cache when they are scraped, so a deleted
// object leaves nothing behind. Durations and results are observed when the cache shows a change.
// A restart or another reconcile shows none, so nothing is observed twice. Only the leader has
// values.
//
// No label can have more than a fixed number of values: see [bounded] and [admission].
package fleet
