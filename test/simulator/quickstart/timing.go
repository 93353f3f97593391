package quickstart

import (
	"fmt"
	"time"
)

// timing is where the time of a demonstration goes.
type timing struct {
	began time.Time
	acts  []act
	// last is when the last act ended.
	last time.Time
	// moved is how long it took until the endpoint had moved.
	moved time.Duration
}

type act struct {
	name string
	took time.Duration
	// waits is what most of it was.
	waits string
}

// act ends an act.
func (t *timing) act(name, waits string) {
	last := t.last
	if last.IsZero() {
		last = t.began
	}
	t.last = time.Now()
	t.acts = append(t.acts, act{name, t.last.Sub(last), waits})
}

// table says where the time went.
func (t *timing) table() []string {
	lines := []string{"", fmt.Sprintf("From nothing to a moved endpoint: %.0f s. Where the time went:", t.moved.Seconds())}
	for _, a := range t.acts {
		line := fmt.Sprintf("  %6.1f s  %s", a.took.Seconds(), a.name)
		if a.waits != "" {
			line += ": " + a.waits
		}
		lines = append(lines, line)
	}
	return lines
}
