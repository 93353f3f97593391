package session

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// writeOverhead is added to the status of a host to get the size of a write: the API
	// server stores the whole object.
	writeOverhead = 4 << 10
	// recovery is longer than the time that compensates any burst.
	recovery = 15 * time.Minute
)

// Class is how far a host has been admitted. Each class has budgets of its own, so that
// hosts of one class can't use up those of another.
type Class string

// Classes.
const (
	ClassApproved Class = "Approved"
	// ClassPending: the host was invited by a token or a declaration.
	ClassPending Class = "Pending"
	// ClassReadopted: anybody can be such a host, where re-adoption is allowed.
	ClassReadopted Class = "Readopted"
)

// ClassOf returns the class of a host.
func ClassOf(host *infrav1.ElementalHost) Class {
	switch {
	case host.Spec.Approval == infrav1.ApprovalApproved:
		return ClassApproved
	case host.Spec.PendingReason == infrav1.PendingReadopted:
		return ClassReadopted
	default:
		return ClassPending
	}
}

// allowance is a number of bytes that may be written at once, and how many more each
// minute.
type allowance struct{ burst, perMinute float64 }

// budgets are the allowances of one host and of all hosts of a class. While more than half
// of the second is used, hosts that have spent more than quiet of their own are refused: a
// few hosts can't use up what all others need.
type budgets struct {
	host, all allowance
	quiet     float64
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// budgetsOf returns the budgets of a class. A write of an ordinary host takes 9 KiB. An
// approved host can write a hundred times at once, and then fourteen times a minute, far
// more than any operation needs. All of them together stay far below etcd's quota of 2 GiB
// between two compactions, ten minutes at most; ten thousand hosts that each write once take
// 90 MiB.
func budgetsOf(class Class) budgets {
	switch class {
	case ClassApproved:
		return budgets{host: allowance{1 * mib, 128 * kib}, all: allowance{256 * mib, 64 * mib}, quiet: 64 * kib}
	case ClassPending:
		return budgets{host: allowance{64 * kib, 16 * kib}, all: allowance{32 * mib, 8 * mib}, quiet: 16 * kib}
	default:
		return budgets{host: allowance{64 * kib, 16 * kib}, all: allowance{4 * mib, 1 * mib}, quiet: 16 * kib}
	}
}

// WriteBudget limits how many bytes hosts can make the manager write. Writes that must not
// wait are only counted. It is safe for concurrent use.
type WriteBudget struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	hosts map[types.NamespacedName]spending
	all   map[Class]spending
	swept time.Time
}

// spending is what was written and not yet compensated by time.
type spending struct {
	bytes float64
	at    time.Time
}

// NewWriteBudget returns a WriteBudget of which nothing is spent.
func NewWriteBudget(c clock.PassiveClock) *WriteBudget {
	return &WriteBudget{clock: c, hosts: map[types.NamespacedName]spending{}, all: map[Class]spending{}}
}

// Take spends a write of a host whose encoded status has that many bytes. If the budget does
// not allow it, nothing is spent and after is when to try again. A write may exceed what is
// left, so that a large status is never refused for ever.
func (b *WriteBudget) Take(host types.NamespacedName, class Class, status int) (after time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after := b.untilAllowed(host, class); after > 0 {
		return after, false
	}
	b.spend(host, class, status)
	return 0, true
}

// Spend counts a write that was not refused.
func (b *WriteBudget) Spend(host types.NamespacedName, class Class, status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spend(host, class, status)
}

// UntilAllowed returns how long the host has to wait for its next write; 0 if it may write
// now.
func (b *WriteBudget) UntilAllowed(host types.NamespacedName, class Class) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.untilAllowed(host, class)
}

// untilAllowed is UntilAllowed. The caller holds the lock.
func (b *WriteBudget) untilAllowed(host types.NamespacedName, class Class) time.Duration {
	now, limits := b.clock.Now(), budgetsOf(class)
	own, all := b.hosts[host].after(now, limits.host), b.all[class].after(now, limits.all)
	wait := max(limits.host.until(own.bytes, limits.host.burst), limits.all.until(all.bytes, limits.all.burst))
	if all.bytes > limits.all.burst/2 {
		wait = max(wait, min(limits.host.until(own.bytes, limits.quiet), limits.all.until(all.bytes, limits.all.burst/2)))
	}
	return wait
}

// spend counts a write. The caller holds the lock.
func (b *WriteBudget) spend(host types.NamespacedName, class Class, status int) {
	now, limits, bytes := b.clock.Now(), budgetsOf(class), float64(status+writeOverhead)
	own, all := b.hosts[host].after(now, limits.host), b.all[class].after(now, limits.all)
	own.bytes += bytes
	all.bytes += bytes
	b.hosts[host], b.all[class] = own, all
	b.sweep(now)
}

// sweep removes hosts whose spending is compensated, at most once a minute. Until
// then a host is kept even without a session: otherwise it could disconnect to get another
// burst. The caller holds the lock.
func (b *WriteBudget) sweep(now time.Time) {
	if now.Sub(b.swept) < time.Minute {
		return
	}
	b.swept = now
	for host, s := range b.hosts {
		if now.Sub(s.at) > recovery {
			delete(b.hosts, host)
		}
	}
}

// after returns the spending at a later time.
func (s spending) after(now time.Time, a allowance) spending {
	return spending{bytes: max(0, s.bytes-a.perMinute*now.Sub(s.at).Minutes()), at: now}
}

// until returns how long it takes until less than limit is spent; 0 if that is so now.
func (a allowance) until(spent, limit float64) time.Duration {
	if spent < limit {
		return 0
	}
	return time.Duration((spent-limit)/a.perMinute*float64(time.Minute)) + time.Second
}
