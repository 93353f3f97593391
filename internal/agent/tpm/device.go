package tpm

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// DefaultDevice is the TPM behind the kernel's resource manager, which isolates
// its users from each other.
const DefaultDevice = "/dev/tpmrm0"

// Device is a TPM. It is opened for each use, so that other programs can use the
// TPM as well.
type Device struct {
	// Path is the device file.
	Path string
	// Open opens the TPM; nil means that Path is opened as a device file.
	Open func(path string) (transport.TPMCloser, error)
}

// Present reports whether the device file exists; the TPM may not work.
func (d Device) Present() bool {
	_, err := os.Stat(d.Path)
	return err == nil
}

// Create creates a key that never leaves the TPM unencrypted.
func (d Device) Create() (*Key, error) {
	var made *tpm2.CreateResponse
	err := d.use(func(device transport.TPM, root tpm2.NamedHandle) (err error) {
		made, err = tpm2.Create{ParentHandle: withoutPassword(root), InPublic: tpm2.New2B(keyTemplate())}.Execute(device)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a key in the TPM: %w", err)
	}
	return newKey(made.OutPublic, made.OutPrivate)
}

// keyTemplate describes a signing key that cannot be moved to another TPM. It has
// no password, so failed attempts must not lock it (NoDA).
func keyTemplate() tpm2.TPMTPublic {
	return tpm2.TPMTPublic{
		Type: tpm2.TPMAlgECC, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true, SignEncrypt: true,
		},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
			Scheme: tpm2.TPMTECCScheme{
				Scheme:  tpm2.TPMAlgECDSA,
				Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256}),
			},
			CurveID: tpm2.TPMECCNistP256,
		}),
	}
}

// use opens the TPM, derives the storage root key, calls do, and releases both.
func (d Device) use(do func(transport.TPM, tpm2.NamedHandle) error) (err error) {
	open := d.Open
	if open == nil {
		open = openFile
	}
	device, err := open(d.Path)
	if err != nil {
		return fmt.Errorf("opening the TPM at %s: %w", d.Path, err)
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	root, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(device)
	if err != nil {
		return fmt.Errorf("deriving the storage root key: %w", err)
	}
	defer func() { err = errors.Join(err, flush(device, root.ObjectHandle)) }()
	return do(device, tpm2.NamedHandle{Handle: root.ObjectHandle, Name: root.Name})
}

func (k *Key) sign(device transport.TPM, root tpm2.NamedHandle, digest []byte) (_ *tpm2.TPMSSignatureECC, err error) {
	loaded, err := tpm2.Load{ParentHandle: withoutPassword(root), InPrivate: k.private, InPublic: k.public}.Execute(device)
	if errors.Is(err, tpm2.TPMRCIntegrity) {
		return nil, fmt.Errorf("%w (%w)", ErrLost, err)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the key: %w", err)
	}
	defer func() { err = errors.Join(err, flush(device, loaded.ObjectHandle)) }()
	signed, err := tpm2.Sign{
		KeyHandle:  withoutPassword(tpm2.NamedHandle{Handle: loaded.ObjectHandle, Name: loaded.Name}),
		Digest:     tpm2.TPM2BDigest{Buffer: digest},
		Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
	}.Execute(device)
	if err != nil {
		return nil, err
	}
	return signed.Signature.Signature.ECDSA()
}

func withoutPassword(handle tpm2.NamedHandle) tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: handle.Handle, Name: handle.Name, Auth: tpm2.PasswordAuth(nil)}
}

func flush(device transport.TPM, handle tpm2.TPMHandle) error {
	if _, err := (tpm2.FlushContext{FlushHandle: handle}).Execute(device); err != nil {
		return fmt.Errorf("freeing a key in the TPM: %w", err)
	}
	return nil
}
