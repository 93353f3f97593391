package session

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxFormerBoots bounds the former boots of a host that are remembered.
	maxFormerBoots = 8
	// BootGrace is how long after the first poll of a new boot a poll of a former boot is
	// only refused: it may have been sent before the host went down.
	BootGrace = 10 * time.Second
)

// BootVerdict is the conclusion from the boot ID of a poll.
type BootVerdict int

// Verdicts.
const (
	// BootAccepted: the poll comes from the newest boot, or no poll has had a boot ID.
	BootAccepted BootVerdict = iota
	// BootOverlaps: the poll comes from a former boot, but may have been sent before the
	// newest boot began.
	BootOverlaps
	// BootReturned: the poll comes from a former boot, after one of a newer boot. A host
	// never returns to a former boot, so two machines use the key.
	BootReturned
	// BootMissing: the poll has no boot ID, but an earlier one had. It proves no second
	// machine, but without a boot ID none could be detected.
	BootMissing
)

// bootTracker detects two machines with one key by the boot IDs of their polls.
type bootTracker struct {
	newest string
	// since is when the newest boot first polled.
	since  time.Time
	former []string
}

// Boot returns the newest boot of the host that has polled; blank if none has, or if the
// host sends no boot IDs.
func (t *Tracker) Boot(host types.NamespacedName) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[host]; s != nil {
		return s.boots.newest
	}
	return ""
}

// observe records the boot ID of a poll. An empty one is accepted until a poll has one.
func (b *bootTracker) observe(boot string, now time.Time) BootVerdict {
	switch {
	case boot == b.newest:
		return BootAccepted
	case boot == "":
		return BootMissing
	case slices.Contains(b.former, boot):
		if now.Sub(b.since) < BootGrace {
			return BootOverlaps
		}
		return BootReturned
	}
	if b.newest != "" {
		b.former = append(b.former, b.newest)
		b.former = b.former[max(0, len(b.former)-maxFormerBoots):]
	}
	b.newest, b.since = boot, now
	return BootAccepted
}
