package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Faults are what goes wrong at random. The zero value is a perfect world.
type Faults struct {
	// Latency delays what arrives at a host over the network. A burst of data is
	// delayed once.
	Latency time.Duration `json:"latency,omitzero"`
	// Loss is the share, 0 to 1, of connections that can't be made, half of them after
	// a long silence; and the share of those made that fall silent within a minute.
	Loss float64 `json:"loss,omitzero"`
	// Disconnects, Crashes and PowerCuts are the mean time between two of them for one
	// host; 0 for never. The network is back after a time of up to Outage, and so is
	// power. A crash is the agent's, which its service starts again.
	Disconnects time.Duration `json:"disconnects,omitzero"`
	Crashes     time.Duration `json:"crashes,omitzero"`
	PowerCuts   time.Duration `json:"powerCuts,omitzero"`
	Outage      time.Duration `json:"outage,omitzero"`
	// SlowBootstraps delays each bootstrap by a time of up to this.
	SlowBootstraps time.Duration `json:"slowBootstraps,omitzero"`
	// FailingBootstraps is the share, 0 to 1, of bootstraps that fail.
	FailingBootstraps float64 `json:"failingBootstraps,omitzero"`
}

// check reports what makes no sense.
func (f Faults) check() error {
	for name, share := range map[string]float64{"loss": f.Loss, "failing bootstraps": f.FailingBootstraps} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("the share of %s is between 0 and 1, not %g", name, share)
		}
	}
	for name, d := range map[string]time.Duration{
		"latency": f.Latency, "time between disconnects": f.Disconnects, "time between crashes": f.Crashes,
		"time between power cuts": f.PowerCuts, "outage": f.Outage, "delay of bootstraps": f.SlowBootstraps,
	} {
		if d < 0 {
			return fmt.Errorf("the %s is not less than nothing, as %s is", name, d)
		}
	}
	return nil
}

// SetFaults changes what goes wrong from now on. What is out stays out until its
// time is over.
func (f *Fleet) SetFaults(next Faults) error {
	if err := next.check(); err != nil {
		return err
	}
	f.faults.Store(&next)
	select {
	case f.faultsChanged <- struct{}{}:
	default:
	}
	return nil
}

// misfortune is a kind of what happens to hosts at random.
type misfortune struct {
	// every is the mean time between two for one host; 0 for never.
	every  time.Duration
	happen func(h *Host, outage time.Duration)
}

func (f Faults) misfortunes() []misfortune {
	return []misfortune{
		{f.Disconnects, func(h *Host, outage time.Duration) {
			h.SetNetwork(false)
			h.fleet.later(outage, func() { h.SetNetwork(true) })
		}},
		{f.Crashes, func(h *Host, _ time.Duration) { h.Crash() }},
		{f.PowerCuts, func(h *Host, outage time.Duration) {
			h.PowerOff()
			h.fleet.later(outage, h.PowerOn)
		}},
	}
}

// disturb has hosts fail at random until ctx ends. One goroutine draws the time
// until the next misfortune of the whole fleet, and whose it is.
func (f *Fleet) disturb(ctx context.Context) {
	for ctx.Err() == nil {
		faults := *f.faults.Load()
		kinds := faults.misfortunes()
		var rates []float64 // a second
		var all float64
		for _, kind := range kinds {
			rate := 0.0
			if kind.every > 0 {
				rate = float64(len(f.hosts)) / kind.every.Seconds()
			}
			rates = append(rates, rate)
			all += rate
		}
		var next <-chan time.Time
		var timer *time.Timer
		if all > 0 {
			timer = time.NewTimer(time.Duration(f.draw((*rand.Rand).ExpFloat64) / all * float64(time.Second)))
			next = timer.C
		}
		select {
		case <-ctx.Done():
		case <-f.faultsChanged:
		case <-next:
			at := f.draw((*rand.Rand).Float64) * all
			for i, rate := range rates {
				if at -= rate; at < 0 {
					outage := f.upTo(faults.Outage)
					h := f.hosts[int(f.draw((*rand.Rand).Float64)*float64(len(f.hosts)))]
					f.background(func() { kinds[i].happen(h, outage) })
					break
				}
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// draw draws from the fleet's source of randomness.
func (f *Fleet) draw(by func(*rand.Rand) float64) float64 {
	f.randomMu.Lock()
	defer f.randomMu.Unlock()
	return by(f.random)
}

// chance is true for a share, 0 to 1, of its calls.
func (f *Fleet) chance(share float64) bool { return share > 0 && f.draw((*rand.Rand).Float64) < share }

// upTo is a time between nothing and d.
func (f *Fleet) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(f.draw((*rand.Rand).Float64) * float64(d))
}
