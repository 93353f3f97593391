package server

import (
	"slices"
	"time"
)

const (
	// maxRetiredBoots bounds the boots of a host that are remembered.
	maxRetiredBoots = 8
	// bootGrace is how long after the first poll of a new boot one of an earlier
	// boot is put off rather than held against the host: it may have been under way
	// when the host went down.
	bootGrace = 10 * time.Second
)

// bootVerdict is what a poll says about the host's boots.
type bootVerdict int

const (
	bootFine bootVerdict = iota
	// bootOverlaps: an earlier boot polls, but may have done so before the newest.
	bootOverlaps
	// bootReturned: an earlier boot polls after a newer one has. A host never
	// returns to an earlier boot, so there are two.
	bootReturned
)

// boots are the boots of one host, as its polls tell.
type boots struct {
	newest string
	// since is when the newest first polled.
	since   time.Time
	retired []string
}

// poll takes note of a poll and tells what it means. A blank boot says nothing.
func (b *boots) poll(boot string, now time.Time) bootVerdict {
	switch {
	case boot == "" || boot == b.newest:
		return bootFine
	case slices.Contains(b.retired, boot):
		if now.Sub(b.since) < bootGrace {
			return bootOverlaps
		}
		return bootReturned
	}
	if b.newest != "" {
		b.retired = append(b.retired, b.newest)
		b.retired = b.retired[max(0, len(b.retired)-maxRetiredBoots):]
	}
	b.newest, b.since = boot, now
	return bootFine
}
