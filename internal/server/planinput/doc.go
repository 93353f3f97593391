// Package planinput reads from the cache what a host's plan is computed from besides the
// host: the addresses and CA of the agent API, and the host's cluster. Notifier wakes
// the polls of hosts whose inputs changed. The plan itself is made by internal/plan.
package planinput
