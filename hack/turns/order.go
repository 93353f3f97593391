package main

import (
	"slices"
	"time"
)

// order sorts each group and the groups themselves: what passed longest ago is first. What never passed is before all
// others, beginning at a place that moves on every day. The arguments stay unchanged.
func order(groups [][]turn, passed record, now time.Time) [][]turn {
	day := int(now.Unix() / int64((24 * time.Hour).Seconds()))
	ordered := make([][]turn, 0, len(groups))
	for _, group := range from(day, groups) {
		group = from(day, group)
		slices.SortStableFunc(group, func(a, b turn) int { return passed[a.name].At.Compare(passed[b.name].At) })
		ordered = append(ordered, group)
	}
	last := func(group []turn) time.Time { return passed[group[len(group)-1].name].At }
	slices.SortStableFunc(ordered, func(a, b []turn) int { return last(a).Compare(last(b)) })
	return ordered
}

// from returns a copy that begins at a place, counted around, and goes on with what was before it.
func from[T any](place int, all []T) []T {
	place %= len(all)
	return slices.Concat(all[place:], all[:place])
}

// choose returns the first turn that the time allows. Those before it are skipped; without such a turn all are.
func choose(group []turn, passed record, left time.Duration) (chosen *turn, skipped []turn) {
	for i := range group {
		if passed.takes(group[i]) <= left {
			return &group[i], group[:i]
		}
	}
	return nil, group
}
