// Package upgrade upgrades Kubernetes in place on virtual hosts, with the steps of the real
// agent. Bundles have no content, so hosts fetch nothing.
package upgrade
