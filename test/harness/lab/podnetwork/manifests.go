package podnetwork

import _ "embed"

// Image is the name of the image that the DaemonSet in Manifests runs: the program
// test/harness/lab/cmd/podnetwork.
const Image = "localhost/elemental-lab/podnetwork:latest"

// manifests is what Manifests returns.
//
//go:embed manifests.yaml
var manifests string

// Manifests returns a DaemonSet that runs on every node, with its RBAC rules.
func Manifests() string { return manifests }
