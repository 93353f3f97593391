// Package certificates watches when the certificates of workload clusters end: those that kubeadm
// has made on control-plane hosts, as the hosts report them, and that of the kubeconfig in the
// management cluster. It derives the condition CertificatesValid of ElementalClusters.
//
// It has the host of a control plane of one host renew its certificates in place. Such a control
// plane can't be replaced without a spare host. What a host reports leads to a renewal on that host
// only, and at most one each day.
package certificates
