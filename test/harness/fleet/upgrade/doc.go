// Package upgrade upgrades Kubernetes in place on virtual hosts, with the steps of the real
// agent. Bundles have no content that is used: hosts fetch nothing, or fetch them and drop the
// bytes.
package upgrade
