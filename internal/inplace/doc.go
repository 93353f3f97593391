// Package inplace judges whether a change of Machines can be made on the hosts that they
// have. Cluster API asks that before it replaces a Machine (packages below), and the
// provider asks itself before it upgrades the only Machine of a control plane.
//
// It is pure. A change is possible if the provider can make every part of it: a new version
// of Kubernetes, at most one minor version up, and what follows from that version alone; or
// another image of the operating system.
package inplace
