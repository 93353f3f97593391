// Package hostkey makes host keys and opens those that were kept: in a TPM where
// there is one, in the file itself otherwise.
package hostkey
