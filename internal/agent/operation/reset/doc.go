// Package reset runs Reset operations on any Linux: stop the node, reboot, clean,
// verify. The reboot ends in one step what no command ends reliably: containers,
// mounts, interfaces, packet filter rules, routes. An installed bundle of Kubernetes is
// removed last. A clean host without an executed
// bootstrap succeeds at once.
//
// Elemental OS has a reset of its own, in package platform/elemental.
package reset
