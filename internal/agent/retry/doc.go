// Package retry decides how long to wait before something is tried again, and
// holds the clock that the agent waits with, so that tests need not wait.
package retry
