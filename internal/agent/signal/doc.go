// Package signal wakes goroutines that wait for work, for a time, or for the end of what they run.
package signal
