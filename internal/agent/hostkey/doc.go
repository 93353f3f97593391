// Package hostkey creates and opens the key with which a host authenticates at
// the manager. The key is in a TPM, or in a file if there is no TPM. The manager
// connection and the key rotation use it.
package hostkey
