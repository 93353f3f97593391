// Package tpm keeps host keys in a TPM 2.0.
//
// A key is made by the TPM under its storage root key, which is derived anew
// whenever it is needed from the template of the TCG EK Credential Profile
// (L-2, ECC NIST P256) and so takes up none of the TPM's storage. What is kept
// in a file is the key's public half and its private half encrypted for this one
// TPM: a copy of the file is worth nothing elsewhere. The format is that of
// "TSS2 PRIVATE KEY", which other programs read as well
// (draft-bottomley-tpm2-keys).
package tpm
