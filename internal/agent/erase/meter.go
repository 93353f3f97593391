package erase

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// stepName is the step of an operation that erases.
const stepName = "erase"

// maxStep bounds what is shown, in bytes.
const maxStep = 120

// meter shows how far all disks are. It is safe for concurrent use.
type meter struct {
	mu       sync.Mutex
	show     func(step string)
	percents map[string]int
	shown    string
}

// at shows a change of the tens only: whoever reads the log wants to know that it
// goes on, and who reads the host is told at most every ten seconds anyway.
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
