package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Faults are random faults. The zero value has none.
type Faults struct {
	// Latency delays data that arrives at a host. A burst of data is delayed once.
	Latency time.Duration `json:"latency,omitzero"`
	// Loss is the share, 0 to 1, of dials that fail, half of them after a long timeout,
	// and the share of established connections that stall within a minute.
	Loss float64 `json:"loss,omitzero"`
	// Disconnects, Crashes and PowerCuts are the mean times between two such faults of one
	// host; 0 means never. Network and power return within Outage. A crash ends the agent;
	// its service restarts it.
	Disconnects time.Duration `json:"disconnects,omitzero"`
	Crashes     time.Duration `json:"crashes,omitzero"`
	PowerCuts   time.Duration `json:"powerCuts,omitzero"`
	Outage      time.Duration `json:"outage,omitzero"`
	// SlowBootstraps is the maximum random delay of a bootstrap.
	SlowBootstraps time.Duration `json:"slowBootstraps,omitzero"`
	// FailingBootstraps is the share, 0 to 1, of bootstraps that fail.
	FailingBootstraps float64 `json:"failingBootstraps,omitzero"`
}

// check validates the settings.
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

// SetFaults replaces the faults. Outages that have begun last as long as planned.
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

// randomFault is a kind of random fault.
type randomFault struct {
	// every is the mean time between two faults of one host; 0 means never.
	every  time.Duration
	happen func(h *Host, outage time.Duration)
}

func (f Faults) randomFaults() []randomFault {
	return []randomFault{
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

// injectFaults injects random faults until ctx ends. One goroutine draws the time and the
// host of the fleet's next fault.
func (f *Fleet) injectFaults(ctx context.Context) {
	for ctx.Err() == nil {
		faults := *f.faults.Load()
		kinds := faults.randomFaults()
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

// draw uses the fleet's random source.
func (f *Fleet) draw(by func(*rand.Rand) float64) float64 {
	f.randomMu.Lock()
	defer f.randomMu.Unlock()
	return by(f.random)
}

// chance returns true with a probability.
func (f *Fleet) chance(share float64) bool { return share > 0 && f.draw((*rand.Rand).Float64) < share }

// upTo returns a random duration below d.
func (f *Fleet) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(f.draw((*rand.Rand).Float64) * float64(d))
}
