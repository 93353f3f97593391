// Package manifests tests the files that `make manifests` writes: a real API server accepts
// components and templates with all settings of their variables, and they meet the requirements of
// clusterctl.
package manifests
