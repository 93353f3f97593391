// Package toolset builds the programs that tests and the lab need from Go modules.
//
// Each tool set has a folder with its own go.mod and go.sum beside this package: the dependency graphs of Kubernetes,
// etcd, containerd, CoreDNS and Cluster API clash with each other and with ours. Nothing is downloaded prebuilt; what
// is built is pinned by go.sum.
//
// Programs are kept outside the checkout in a cache, each under a hash of everything that went into it (go.mod,
// go.sum, flags, Go version, platform), so a second call returns at once and a changed input builds anew.
package toolset
