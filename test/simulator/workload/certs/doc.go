// Package certs issues what kubeadm issues: serving certificates, client certificates and the kubeconfigs
// that hold them. Authorities are those of the bootstrap data; what they issue has ECDSA keys, because
// hundreds of RSA keys take longer to make than all else in a simulated cluster.
package certs
