package snapshotrelay

import "time"

// SetIdle changes how long neither side may send anything.
func (r *Relay) SetIdle(d time.Duration) { r.idle = d }
