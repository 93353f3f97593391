package erase

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// stepName is the step of an operation that erases.
const stepName = "erase"

// maxStep limits the length of a step, in bytes.
const maxStep = 120

// meter reports the progress of all disks as a step. It is safe for concurrent use.
type meter struct {
	mu       sync.Mutex
	show     func(step string)
	percents map[string]int
	shown    string
}

// at shows the progress of a disk in steps of 10 %, which is enough for a log.
func (m *meter) at(name string, percent int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.percents[name] = percent - percent%10
	parts := make([]string, 0, len(m.percents))
	for name, percent := range m.percents {
		if percent < 100 {
			parts = append(parts, fmt.Sprintf("%s %d%%", name, percent))
		}
	}
	slices.Sort(parts)
	step := strings.TrimSpace(stepName + " " + strings.Join(parts, ", "))
	if len(step) > maxStep {
		step = step[:maxStep]
	}
	if step != m.shown {
		m.shown = step
		m.show(step)
	}
}
