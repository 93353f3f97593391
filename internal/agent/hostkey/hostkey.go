package hostkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/tpm"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

// Policy says where new keys are made. A key that exists is used wherever it is.
type Policy string

// Policies.
const (
	// Auto uses a TPM that works, and a file otherwise. A host whose key is in a
	// TPM never gets one in a file.
	Auto Policy = "Auto"
	// Required makes no key where there is no TPM.
	Required Policy = "Required"
	// Off makes keys in files.
	Off Policy = "Off"
)

// Known reports whether it is one of the policies.
func (p Policy) Known() bool { return p == Auto || p == Required || p == Off }

// TPM is what keys can be made in and used from.
type TPM interface {
	// Present is cheap; it says nothing about whether the TPM works.
	Present() bool
	Create() (*tpm.Key, error)
	Signer(key *tpm.Key) crypto.Signer
}

// Keys makes and opens keys. It is safe for concurrent use.
type Keys struct {
	Policy Policy
	// TPM may be nil where Policy is Off and no key is in one.
	TPM TPM
	Log *slog.Logger
}

// New makes a key to take the place of current, which is blank for the first
// one, and returns it as text for Signer.
func (k Keys) New(current string) (string, error) {
	switch k.Policy {
	case Required:
		if !k.TPM.Present() {
			return "", errors.New("making the host's key: there is no TPM, and the configuration requires one: " +
				"switch it on in the firmware, or set key.tpm to Auto")
		}
		return k.inTPM()
	case Auto:
		if !k.TPM.Present() && !inTPM(current) {
			break
		}
		text, err := k.inTPM()
		if err == nil || inTPM(current) {
			return text, err
		}
		k.Log.Warn("The host's key is made in a file, because the TPM cannot be used", "error", err)
	case Off:
	}
	key, err := identity.NewKey()
	if err != nil {
		return "", err
	}
	text, err := identity.EncodeKey(key)
	return string(text), err
}

func (k Keys) inTPM() (string, error) {
	key, err := k.TPM.Create()
	if err != nil {
		return "", err
	}
	return key.PEM()
}

// Signer opens a key. The TPM, if that is where it is, is only asked when
// something is signed.
func (k Keys) Signer(text string) (crypto.Signer, error) {
	if !inTPM(text) {
		return identity.DecodeKey([]byte(text))
	}
	key, err := tpm.Parse(text)
	if err != nil {
		return nil, err
	}
	if k.TPM == nil {
		return nil, errors.New("the host's key is in a TPM")
	}
	return k.TPM.Signer(key), nil
}

// Check reports what is wrong with a key's text, without any TPM.
func Check(text string) error {
	_, err := public(text)
	return err
}

// Fingerprint is the identity.Fingerprint of a key.
func Fingerprint(text string) (string, error) {
	key, err := public(text)
	if err != nil {
		return "", err
	}
	spki, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding public key: %w", err)
	}
	return identity.Fingerprint(spki), nil
}

// Place is where a key is, for people: "TPM" or "file".
func Place(text string) string {
	if inTPM(text) {
		return "TPM"
	}
	return "file"
}

func inTPM(text string) bool {
	block, _ := pem.Decode([]byte(text))
	return block != nil && block.Type == tpm.PEMType
}

func public(text string) (*ecdsa.PublicKey, error) {
	if inTPM(text) {
		key, err := tpm.Parse(text)
		if err != nil {
			return nil, err
		}
		return key.Public(), nil
	}
	key, err := identity.DecodeKey([]byte(text))
	if err != nil {
		return nil, err
	}
	return &key.PublicKey, nil
}
