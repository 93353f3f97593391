package direct

import (
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	// A user gets ten kubeconfigs at once, and one a minute after that.
	userBurst = 10
	userRate  = 1.0 / 60
	// maxOpen bounds the requests that wait for a workload cluster, of all users.
	maxOpen = 64
	// maxUsers bounds the table of users.
	maxUsers = 4096
	// retrySeconds is when a user may try again.
	retrySeconds = 60
)

// limits bound requests, by user and in all.
type limits struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	open  int
	users map[string]*rate.Limiter
}

func newLimits(now clock.PassiveClock) *limits {
	return &limits{clock: now, users: map[string]*rate.Limiter{}}
}

// begin counts a request unless a limit is reached. If ok is true, the caller must call done once.
func (l *limits) begin(name string) (done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	is := l.users[name]
	if is == nil {
		if len(l.users) >= maxUsers {
			l.evict()
		}
		if len(l.users) >= maxUsers {
			return nil, false
		}
		is = rate.NewLimiter(userRate, userBurst)
		l.users[name] = is
	}
	if l.open >= maxOpen || !is.AllowN(now, 1) {
		return nil, false
	}
	l.open++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
	}, true
}

// evict removes the users who have their full burst again.
func (l *limits) evict() {
	now := l.clock.Now()
	for name, is := range l.users {
		if is.TokensAt(now) >= userBurst {
			delete(l.users, name)
		}
	}
}
