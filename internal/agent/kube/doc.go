// Package kube is the smallest client of a Kubernetes API server: a kubeconfig
// with a client certificate, and single JSON requests of net/http. Proxies of the
// environment don't apply.
package kube
