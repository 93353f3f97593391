package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

const (
	// maxStates bounds the reasons of conditions. The manager has fewer.
	maxStates = 64
	// maxNames bounds failure domains and registrations, whose names users choose.
	maxNames = 100
	// maxVersions bounds the versions of agents, which hosts report.
	maxVersions = 20
	// maxValueLength is the length of the longest value of a label in bytes, long enough for a namespace
	// and a name.
	maxValueLength = 63 + 1 + 253
)

// Values of labels that stand for others.
const (
	// other stands for all values above a bound.
	other = "other"
	// none stands for a missing value.
	none = "none"
)

// bounded returns which value of a label each key has: itself for the first keys in the order,
// other for the rest.
func bounded[V any](values map[string]V, most int, order func(a, b string) int) map[string]string {
	labels := make(map[string]string, len(values))
	for _, key := range slices.SortedFunc(maps.Keys(values), order) {
		if len(labels) < most && len(key) <= maxValueLength {
			labels[key] = strings.ToValidUTF8(key, "?")
		}
	}
	for key := range values {
		if _, has := labels[key]; !has {
			labels[key] = other
		}
	}
	return labels
}

// byName keeps the same series while numbers of hosts change.
func byName(a, b string) int { return strings.Compare(a, b) }

// mostFirst lets a few hosts not replace the values of many.
func mostFirst(counts map[string]int) func(a, b string) int {
	return func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	}
}

// admission bounds the values of a label that is not counted from all objects at once: the first
// ones to come are admitted.
type admission struct{ admitted map[string]bool }

func (a *admission) label(value string) string {
	if value == "" {
		return none
	}
	if !a.admitted[value] {
		if len(a.admitted) >= maxStates {
			return other
		}
		if a.admitted == nil {
			a.admitted = map[string]bool{}
		}
		a.admitted[value] = true
	}
	return value
}
