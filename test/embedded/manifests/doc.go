// Package manifests makes what clusterctl would install of a provider fit a manager that runs as a process: kinds,
// roles and webhook configurations stay as they are, but webhooks are called at an address on the loopback, and nothing
// of what would run the manager in a Pod or give it certificates is left.
package manifests
