package quickstart

import (
	"fmt"
	"time"
)

// timing records the time of each step of a demonstration.
type timing struct {
	began time.Time
	steps []step
	// last is the end of the last step.
	last time.Time
	// moved is the time from the start until the endpoint had moved, or led through another host.
	moved time.Duration
}

type step struct {
	name string
	took time.Duration
	// waits describes what the step waited for most of the time.
	waits string
}

// step records the end of a step.
func (t *timing) step(name, waits string) {
	last := t.last
	if last.IsZero() {
		last = t.began
	}
	t.last = time.Now()
	t.steps = append(t.steps, step{name, t.last.Sub(last), waits})
}

// table returns the times as lines of text.
func (t *timing) table() []string {
	lines := []string{"", fmt.Sprintf("From nothing to a moved endpoint: %.0f s. Where the time went:", t.moved.Seconds())}
	for _, a := range t.steps {
		line := fmt.Sprintf("  %6.1f s  %s", a.took.Seconds(), a.name)
		if a.waits != "" {
			line += ": " + a.waits
		}
		lines = append(lines, line)
	}
	return lines
}
