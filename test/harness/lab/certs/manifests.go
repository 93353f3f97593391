package certs

import _ "embed"

// Image is the name of the image that the Deployment in Manifests runs: the program test/harness/lab/cmd/certs.
const Image = "localhost/elemental-lab/certs:latest"

// manifests is what Manifests returns.
//
//go:embed manifests.yaml
var manifests string

// Manifests returns the CRDs Certificate and Issuer, and a Deployment of this package with its
// RBAC rules.
func Manifests() string { return manifests }
