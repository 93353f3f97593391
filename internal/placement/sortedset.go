package placement

import (
	"iter"
	"slices"
)

// chunkLimit is the largest number of strings in a chunk.
const chunkLimit = 512

// SortedSet is a sorted set of strings. Adding and removing stay fast in large
// sets, because they move at most chunkLimit strings. The zero value is empty. nil
// is an empty set for Len and All.
type SortedSet struct {
	// chunks are sorted, and none is empty.
	chunks [][]string
	length int
}

// Len returns the number of strings.
func (set *SortedSet) Len() int {
	if set == nil {
		return 0
	}
	return set.length
}

// chunk returns the index of the chunk that contains the string or would contain it.
func (set *SortedSet) chunk(s string) int {
	i, found := slices.BinarySearchFunc(set.chunks, s, func(chunk []string, s string) int {
		switch {
		case chunk[0] < s:
			return -1
		case chunk[0] > s:
			return 1
		default:
			return 0
		}
	})
	if found || i == 0 {
		return i
	}
	return i - 1
}

// Add adds a string unless the set contains it.
func (set *SortedSet) Add(s string) {
	if len(set.chunks) == 0 {
		set.chunks, set.length = [][]string{{s}}, 1
		return
	}
	i := set.chunk(s)
	at, found := slices.BinarySearch(set.chunks[i], s)
	if found {
		return
	}
	set.length++
	set.chunks[i] = slices.Insert(set.chunks[i], at, s)
	if n := len(set.chunks[i]); n > chunkLimit {
		second := slices.Clone(set.chunks[i][n/2:])
		set.chunks[i] = slices.Clone(set.chunks[i][:n/2])
		set.chunks = slices.Insert(set.chunks, i+1, second)
	}
}

// Remove removes a string if the set contains it.
func (set *SortedSet) Remove(s string) {
	if set.Len() == 0 {
		return
	}
	i := set.chunk(s)
	at, found := slices.BinarySearch(set.chunks[i], s)
	if !found {
		return
	}
	set.length--
	set.chunks[i] = slices.Delete(set.chunks[i], at, at+1)
	if len(set.chunks[i]) == 0 {
		set.chunks = slices.Delete(set.chunks, i, i+1)
	}
}

// All yields the strings in order. The set must not be changed meanwhile.
func (set *SortedSet) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		if set == nil {
			return
		}
		for _, chunk := range set.chunks {
			for _, s := range chunk {
				if !yield(s) {
					return
				}
			}
		}
	}
}
