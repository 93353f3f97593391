package tpm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// PEMType is the type of the PEM block of a key.
const PEMType = "TSS2 PRIVATE KEY"

// maxKeyBytes limits the size of a key's PEM text.
const maxKeyBytes = 8 << 10

// ErrLost is returned for a key that the TPM cannot load: the TPM was cleared or
// replaced, or the file came from another machine.
var ErrLost = errors.New("this machine's TPM does not hold the host's key: the TPM was cleared or replaced, " +
	"or the disk came from another machine")

// Key is a key as it is stored in a file. Parsing it does not need the TPM.
type Key struct {
	public  tpm2.TPM2BPublic
	private tpm2.TPM2BPrivate
	point   *ecdsa.PublicKey
}

// fileKey is TPMKey of draft-bottomley-tpm2-keys, section 3.1.
type fileKey struct {
	Type asn1.ObjectIdentifier
	// EmptyAuth is true for a key without a password.
	EmptyAuth bool `asn1:"optional,explicit,tag:0"`
	Parent    int64
	Public    []byte
	Private   []byte
}

// loadable returns id-loadablekey, the type of a key for TPM2_Load.
func loadable() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 23, 133, 10, 1, 3} }

// Parse parses the text that PEM returned.
func Parse(text string) (*Key, error) {
	if len(text) > maxKeyBytes {
		return nil, fmt.Errorf("reading the TPM key: it has more than %d bytes", maxKeyBytes)
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != PEMType {
		return nil, errors.New("reading the TPM key: no PEM block of type " + PEMType)
	}
	var file fileKey
	if rest, err := asn1.Unmarshal(block.Bytes, &file); err != nil {
		return nil, fmt.Errorf("reading the TPM key: %w", err)
	} else if len(rest) > 0 {
		return nil, errors.New("reading the TPM key: something follows it")
	}
	if !file.Type.Equal(loadable()) || file.Parent != int64(tpm2.TPMRHOwner) {
		return nil, errors.New("reading the TPM key: it is not one under the storage root key")
	}
	public, err := tpm2.Unmarshal[tpm2.TPM2BPublic](file.Public)
	if err != nil {
		return nil, fmt.Errorf("reading the public half of the TPM key: %w", err)
	}
	private, err := tpm2.Unmarshal[tpm2.TPM2BPrivate](file.Private)
	if err != nil {
		return nil, fmt.Errorf("reading the private half of the TPM key: %w", err)
	}
	return newKey(*public, *private)
}

func newKey(public tpm2.TPM2BPublic, private tpm2.TPM2BPrivate) (*Key, error) {
	content, err := public.Contents()
	if err != nil {
		return nil, fmt.Errorf("reading the public half of the TPM key: %w", err)
	}
	parameters, err := content.Parameters.ECCDetail()
	if err != nil {
		return nil, fmt.Errorf("reading the public half of the TPM key: %w", err)
	}
	unique, err := content.Unique.ECC()
	if err != nil {
		return nil, fmt.Errorf("reading the public half of the TPM key: %w", err)
	}
	if parameters.CurveID != tpm2.TPMECCNistP256 {
		return nil, errors.New("reading the public half of the TPM key: it is not on P-256")
	}
	// The uncompressed form of SEC 1, 2.3.3. Parsing it checks that the point is on
	// the curve.
	const size = 32
	if len(unique.X.Buffer) > size || len(unique.Y.Buffer) > size {
		return nil, errors.New("reading the public half of the TPM key: it is too long")
	}
	encoded := make([]byte, 1+2*size)
	encoded[0] = 4
	copy(encoded[1+size-len(unique.X.Buffer):], unique.X.Buffer)
	copy(encoded[1+2*size-len(unique.Y.Buffer):], unique.Y.Buffer)
	point, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), encoded)
	if err != nil {
		return nil, fmt.Errorf("reading the public half of the TPM key: %w", err)
	}
	return &Key{public: public, private: private, point: point}, nil
}

// PEM encodes the key for Parse. The private half is encrypted.
func (k *Key) PEM() (string, error) {
	der, err := asn1.Marshal(fileKey{
		Type: loadable(), EmptyAuth: true, Parent: int64(tpm2.TPMRHOwner),
		Public: tpm2.Marshal(k.public), Private: tpm2.Marshal(k.private),
	})
	if err != nil {
		return "", fmt.Errorf("encoding the TPM key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: PEMType, Bytes: der})), nil
}

// Public returns the public half.
func (k *Key) Public() *ecdsa.PublicKey { return k.point }

// Signer returns a signer that uses the key on the TPM that created it.
func (d Device) Signer(key *Key) crypto.Signer { return &signer{key: key, device: d} }

type signer struct {
	key    *Key
	device Device
}

func (s *signer) Public() crypto.PublicKey { return s.key.point }

// Sign returns an ASN.1 signature of a SHA-256 digest. It uses the TPM's random
// number generator.
func (s *signer) Sign(_ io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	if options.HashFunc() != crypto.SHA256 || len(digest) != crypto.SHA256.Size() {
		return nil, errors.New("signing with the TPM: its keys sign SHA-256 digests only")
	}
	var signature *tpm2.TPMSSignatureECC
	err := s.device.use(func(device transport.TPM, root tpm2.NamedHandle) (err error) {
		signature, err = s.key.sign(device, root, digest)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("signing with the TPM: %w", err)
	}
	return asn1.Marshal(struct{ R, S *big.Int }{
		new(big.Int).SetBytes(signature.SignatureR.Buffer), new(big.Int).SetBytes(signature.SignatureS.Buffer),
	})
}
