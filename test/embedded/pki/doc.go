// Package pki makes the authorities, certificates and keys of an embedded cluster. They live as long as it does.
package pki
