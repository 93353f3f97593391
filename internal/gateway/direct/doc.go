// Package direct gives users kubeconfigs at /kubeconfigs/NAMESPACE/CLUSTER, with which they
// keep access to a workload cluster while the management cluster is away: beside the context
// through the gateway they have one for each control-plane host, with a client certificate.
//
// Users are let in as package proxy does it: whoever may create clusters/kubeconfig of a
// cluster gets a certificate for the user and the groups that the caller is in workload
// clusters, and for nobody else. The workload cluster's own CSR API issues it, so the gateway
// has no key of a CA, and the workload cluster's bindings decide what the certificate
// permits. It can't be revoked, so it is short-lived.
package direct
