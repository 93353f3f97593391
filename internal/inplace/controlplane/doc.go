// Package controlplane finds the change that a KubeadmControlPlane is about to make to one of
// its Machines, without a request from Cluster API. The provider has to know it where Cluster
// API does not ask: for a control plane of one Machine.
package controlplane
