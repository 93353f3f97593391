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

// Policy says where new keys are created. An existing key is used in any case.
type Policy string

// Policies.
const (
	// Auto uses a working TPM, and a file otherwise. A host whose key is in a TPM
	// never gets a key in a file.
	Auto Policy = "Auto"
	// Required creates keys only in a TPM.
	Required Policy = "Required"
	// Off creates keys in files.
	Off Policy = "Off"
)

// Known reports whether p is one of the policies.
func (p Policy) Known() bool { return p == Auto || p == Required || p == Off }

// TPM creates keys and signs with them.
type TPM interface {
	// Present reports whether there is a TPM; the TPM may not work.
	Present() bool
	Create() (*tpm.Key, error)
	Signer(key *tpm.Key) crypto.Signer
}

// Keys creates and opens keys. It is safe for concurrent use.
type Keys struct {
	Policy Policy
	// TPM may be nil if Policy is Off and no key is in a TPM.
	TPM TPM
	Log *slog.Logger
}

// New creates a key that replaces current, which is blank for the first key, and
// returns it as text for Signer.
func (k Keys) New(current string) (string, error) {
	switch k.Policy {
	case Required:
		if !k.TPM.Present() {
			return "", errors.New("making the host's key: there is no TPM, and the configuration requires one: " +
				"switch it on in the firmware, or set key.tpm to Auto")
		}
		return k.createInTPM()
	case Auto:
		if !k.TPM.Present() && !inTPM(current) {
			break
		}
		text, err := k.createInTPM()
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

func (k Keys) createInTPM() (string, error) {
	key, err := k.TPM.Create()
	if err != nil {
		return "", err
	}
	return key.PEM()
}

// Signer opens a key. A key in the TPM is loaded only when the signer signs.
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

// Check returns an error for an invalid key text. It needs no TPM.
func Check(text string) error {
	_, err := public(text)
	return err
}

// Fingerprint returns the identity.Fingerprint of a key.
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

// Place returns where a key is stored, for display: "TPM" or "file".
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
