// Package release finds what an ElementalKubernetesRelease has for a host: the bundle of a
// version of Kubernetes for the host's architecture.
package release
