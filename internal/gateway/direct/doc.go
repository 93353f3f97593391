// Package direct gives users kubeconfigs at /kubeconfigs/NAMESPACE/CLUSTER, with which they
// keep access to a workload cluster while the management cluster is away: beside the context
// through the gateway they have one for each control-plane host, with a client certificate.
//
// proxy.Gate authorizes callers: they need the verb create on clusters/kubeconfig of the
// cluster. The certificate names the user and the groups of the caller's proxy.Identity, and no
// others. The workload cluster's own CSR API issues it, so the gateway has no key of a CA, and
// the workload cluster's bindings decide what the certificate permits. It can't be revoked, so
// it is short-lived.
package direct
