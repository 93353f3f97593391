// Package kube is a minimal client of a Kubernetes API server: it reads a
// kubeconfig with a client certificate and makes single JSON requests, because the
// agent must not depend on the libraries of Kubernetes. It ignores proxies of the
// environment.
package kube
