// Package clusters connects the authentication proxy to workload clusters: it finds the
// cluster, dials its API servers as the gateway does, and gets the proxy's token there with
// the kubeconfig that Cluster API's controllers use. It also knows how users reach the API
// servers by themselves.
package clusters
