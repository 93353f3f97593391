// Package pause finds out whether a host is paused: by its own annotation, by its Cluster or
// by its ElementalMachine. While it is paused, nothing new begins on it, and what has begun
// continues. The agent API and the controller of hosts use it.
package pause
