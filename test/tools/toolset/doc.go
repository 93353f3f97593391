// Package toolset builds the programs that tests and the lab need from Go modules.
//
// Each tool set is a Go module in a folder next to this package, because the dependencies of Kubernetes, etcd, containerd,
// CoreDNS, Cluster API and this project conflict. Nothing is downloaded prebuilt; go.sum pins all sources.
//
// Programs are cached outside the checkout under a hash of all inputs (go.mod, go.sum, flags, Go version, platform). A
// changed input causes a new build.
package toolset
