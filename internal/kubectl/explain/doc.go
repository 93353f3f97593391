// Package explain says what a machine, a host or a cluster waits for: each wait with its
// reason, since when, and what would end it. For a machine without a host it names the first
// term that rules out each host.
//
// It decides nothing by itself. It reads objects and asks the packages that the manager
// decides with: placement, selector and hoststatus.
package explain
