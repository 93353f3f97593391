// Package lookup orders concurrent look-ups of one fact.
package lookup

import "sync/atomic"

// Order orders concurrent look-ups of one fact. A slow look-up must not replace the result of
// one that began later. The zero value is ready to use.
type Order struct {
	begun atomic.Int64
	// recorded is the latest look-up whose result is the fact.
	recorded int64
}

// Begin returns the number of a look-up. It is safe for concurrent use.
func (o *Order) Begin() int64 { return o.begun.Add(1) }

// Record reports whether the result of a look-up is to be recorded. The caller holds the lock
// that protects the fact.
func (o *Order) Record(lookup int64) bool {
	if lookup < o.recorded {
		return false
	}
	o.recorded = lookup
	return true
}
