package audit

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// repeatInterval is how long a repeated decision about one subject is not logged: a
	// rejected host keeps retrying.
	repeatInterval = 10 * time.Minute
	// maxSubjects bounds the subjects of each kind of decision. Unknown callers can fill
	// the table of one kind, but can't suppress decisions of another kind.
	maxSubjects = 8192
)

// deduper remembers which decisions were logged recently.
type deduper struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	decisions map[Decision]*loggedSubjects
}

// loggedSubjects holds when decisions of one kind were logged, by subject.
type loggedSubjects struct {
	at      map[string]time.Time
	evicted time.Time
}

func newDeduper(c clock.PassiveClock) *deduper {
	return &deduper{clock: c, decisions: map[Decision]*loggedSubjects{}}
}

// first reports whether the decision was not logged within repeatInterval, and
// records that it is now. It returns false while the table is full.
func (d *deduper) first(decision Decision, subject string) bool {
	now := d.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	logged := d.decisions[decision]
	if logged == nil {
		logged = &loggedSubjects{at: map[string]time.Time{}}
		d.decisions[decision] = logged
	}
	if at, ok := logged.at[subject]; ok && now.Sub(at) < repeatInterval {
		return false
	}
	if len(logged.at) >= maxSubjects && !logged.evict(now) {
		return false
	}
	logged.at[subject] = now
	return true
}

// evict removes expired subjects, at most once a second. It reports whether the table
// has room afterwards.
func (l *loggedSubjects) evict(now time.Time) bool {
	if now.Sub(l.evicted) < time.Second {
		return false
	}
	l.evicted = now
	for subject, at := range l.at {
		if now.Sub(at) >= repeatInterval {
			delete(l.at, subject)
		}
	}
	return len(l.at) < maxSubjects
}
