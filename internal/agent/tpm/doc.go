// Package tpm creates host keys in a TPM 2.0 and signs with them. Package hostkey
// uses it.
//
// The TPM creates a key below its storage root key, which is derived from the
// template of the TCG EK Credential Profile (L-2, ECC NIST P256) for each use and
// therefore needs no storage in the TPM. A file contains the key's public half
// and its private half, encrypted for this TPM: a copy of the file is useless on
// another machine. The file has the format "TSS2 PRIVATE KEY", which other
// programs can read as well (draft-bottomley-tpm2-keys).
package tpm
