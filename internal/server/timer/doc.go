// Package timer calls functions at given times, for all hosts with one goroutine
// and one timer.
//
// client-go's delaying work queue can't cancel an entry: a poll that ends early
// would stay in it, with what it refers to, for up to ten minutes.
package timer
