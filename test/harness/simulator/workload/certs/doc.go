// Package certs issues the certificates and kubeconfigs that kubeadm issues. The CAs come from the
// bootstrap data. Issued keys are ECDSA keys, because creating hundreds of RSA keys would take
// longer than the rest of a simulated cluster.
package certs
