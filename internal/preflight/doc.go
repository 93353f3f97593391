// Package preflight decides what keeps kubeadm from working on a host, from the facts that
// the host reports. It is pure. A fact that a host does not report is no finding, and neither
// is what the bootstrap mends by itself, because it installs a bundle.
//
// The condition Prepared of an ElementalHost names findings for any Machine; package placement
// asks for those that concern one Machine (docs/adr/0075).
package preflight
