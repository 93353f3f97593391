package forward

import (
	"context"
	"sync"
	"time"
)

// checkInterval is the time between two checks of a backend.
const checkInterval = 10 * time.Second

// Watch checks the backends that are used, and those that have failed, until ctx ends.
func (f *Forwarder) Watch(ctx context.Context) {
	for f.o.Clock.Wait(ctx, checkInterval) == nil {
		f.check(ctx)
	}
}

func (f *Forwarder) check(ctx context.Context) {
	own := f.o.Own()
	f.mu.Lock()
	f.backends.forgetRemoved(own)
	f.dropRemoved(own)
	used := map[string]bool{}
	for address := range f.backends.failures {
		used[address] = true
	}
	for l := range f.links {
		if l.address != "" {
			used[l.address] = true
		}
	}
	f.mu.Unlock()
	var checks sync.WaitGroup
	for address := range used {
		checks.Go(func() {
			err := f.o.Check(ctx, address)
			if ctx.Err() == nil {
				f.record(address, err)
			}
		})
	}
	checks.Wait()
}

// record closes the connections of a backend that has become sick.
func (f *Forwarder) record(address string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.backends.record(address, err) {
		return
	}
	if err == nil {
		f.o.Log.Info("An API server answers again", "backend", address)
		return
	}
	f.o.Log.Warn("An API server does not answer", "backend", address, "error", err)
	for l := range f.links {
		if l.address == address {
			l.close()
		}
	}
}
