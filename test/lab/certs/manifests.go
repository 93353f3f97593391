package certs

import _ "embed"

// Image is the name of the image that the Deployment in Manifests runs: the program test/lab/cmd/certs.
const Image = "localhost/elemental-lab/certs:latest"

// manifests is what Manifests returns.
//
//go:embed manifests.yaml
var manifests string

// Manifests returns the definitions of Certificate and Issuer, and a Deployment of this package with its rights.
func Manifests() string { return manifests }
