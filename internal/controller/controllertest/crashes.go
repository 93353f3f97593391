package controllertest

import (
	"iter"
	"testing"
)

// Crashes yields the failures of a search that loses each of a number of writes, before
// and after it: arguments of Client.FailWrite. With -short it yields a third of them, with
// both moments and spread over all writes.
func Crashes(writes int) iter.Seq2[int, Moment] {
	return func(yield func(int, Moment) bool) {
		for n := 1; n <= writes; n++ {
			for i, moment := range []Moment{BeforeWrite, AfterWrite} {
				if testing.Short() && n%3 != i+1 {
					continue
				}
				if !yield(n, moment) {
					return
				}
			}
		}
	}
}
