package placement

import (
	"iter"
	"slices"
)

// chunkLimit bounds what an insertion or removal moves.
const chunkLimit = 512

// Order is a sorted set of strings. What it takes to add or remove one hardly
// grows with their number. The zero value is empty.
type Order struct {
	// chunks are sorted and not empty.
	chunks [][]string
	length int
}

// Len returns how many strings there are.
func (o *Order) Len() int {
	if o == nil {
		return 0
	}
	return o.length
}

// chunk returns the number of the chunk that the string is in, or would be in.
func (o *Order) chunk(s string) int {
	i, found := slices.BinarySearchFunc(o.chunks, s, func(chunk []string, s string) int {
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

// Add adds a string, if it is not there.
func (o *Order) Add(s string) {
	if len(o.chunks) == 0 {
		o.chunks, o.length = [][]string{{s}}, 1
		return
	}
	i := o.chunk(s)
	at, found := slices.BinarySearch(o.chunks[i], s)
	if found {
		return
	}
	o.length++
	o.chunks[i] = slices.Insert(o.chunks[i], at, s)
	if n := len(o.chunks[i]); n > chunkLimit {
		second := slices.Clone(o.chunks[i][n/2:])
		o.chunks[i] = slices.Clone(o.chunks[i][:n/2])
		o.chunks = slices.Insert(o.chunks, i+1, second)
	}
}

// Remove removes a string, if it is there.
func (o *Order) Remove(s string) {
	if o.Len() == 0 {
		return
	}
	i := o.chunk(s)
	at, found := slices.BinarySearch(o.chunks[i], s)
	if !found {
		return
	}
	o.length--
	o.chunks[i] = slices.Delete(o.chunks[i], at, at+1)
	if len(o.chunks[i]) == 0 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
}

// All yields the strings in order. They must not be changed meanwhile.
func (o *Order) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		if o == nil {
			return
		}
		for _, chunk := range o.chunks {
			for _, s := range chunk {
				if !yield(s) {
					return
				}
			}
		}
	}
}
