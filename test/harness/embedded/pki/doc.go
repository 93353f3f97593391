// Package pki creates the certificate authorities, certificates and keys of an embedded cluster.
package pki
