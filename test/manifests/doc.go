// Package manifests tests what `make release` writes: that a real API server
// accepts the components and the cluster template as they are, whatever their
// variables are set to, and that they are what clusterctl expects.
package manifests
