// Package certs does the little of cert-manager that Cluster API's providers need, so that a lab works where cert-manager
// can't be pulled: a Certificate of a self-signed Issuer becomes a Secret, and what is annotated with
// cert-manager.io/inject-ca-from gets the certificate as its caBundle. It has its own minimal definitions of the two
// kinds, see Manifests.
//
// Everything is one level-triggered pass over a few dozen objects, run when one of them changes.
package certs
