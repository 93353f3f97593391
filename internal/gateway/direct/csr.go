package direct

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

// Bounds of RSA keys, in bits.
const (
	minRSABits = 2048
	maxRSABits = 4096
)

// Attributes of a subject (RFC 5280) by which an API server knows user and groups.
const (
	commonName   = "2.5.4.3"
	organization = "2.5.4.10"
)

// signingRequest is a request for a certificate that was checked.
type signingRequest struct {
	pem []byte
	key crypto.PublicKey
}

// newRequest makes a key and a request for a certificate of the identity.
func newRequest(as proxy.Identity) (key []byte, request signingRequest, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, signingRequest{}, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, signingRequest{}, fmt.Errorf("encoding a key: %w", err)
	}
	subject := pkix.Name{CommonName: as.User, Organization: as.Groups}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, private)
	if err != nil {
		return nil, signingRequest{}, apierrors.NewForbidden(resource(), "", fmt.Errorf("no certificate can have the names of the user and the groups: %w", err))
	}
	request = signingRequest{pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), key: private.Public()}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), request, nil
}

// foreignRequest checks a caller's request for a certificate: it must be for the caller, with
// all groups, and for nothing else.
func foreignRequest(body []byte, as proxy.Identity) (signingRequest, error) {
	block, rest := pem.Decode(body)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return signingRequest{}, apierrors.NewBadRequest("the body must be one PEM block of type CERTIFICATE REQUEST")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return signingRequest{}, apierrors.NewBadRequest("reading the request for a certificate: " + err.Error())
	}
	// Before the signature, because checking it with a huge key takes long.
	if err := checkKey(csr.PublicKey); err != nil {
		return signingRequest{}, apierrors.NewBadRequest(err.Error())
	}
	if err := csr.CheckSignature(); err != nil {
		return signingRequest{}, apierrors.NewBadRequest("the signature of the request for a certificate is wrong: " + err.Error())
	}
	if len(csr.Extensions) > 0 {
		return signingRequest{}, apierrors.NewBadRequest("the request for a certificate has extensions, such as other names: leave them out")
	}
	if !isOf(csr.Subject, as) {
		return signingRequest{}, apierrors.NewForbidden(resource(), "", fmt.Errorf("the subject must be the caller's own: "+
			"one CN, which is the user %q, and one O for each of the groups %q", as.User, as.Groups))
	}
	return signingRequest{pem: pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}), key: csr.PublicKey}, nil
}

// isOf reports whether the subject is exactly the identity: an attribute more could be
// another user ID, or whatever else a version of Kubernetes reads.
func isOf(subject pkix.Name, as proxy.Identity) bool {
	var users, groups []string
	for _, attribute := range subject.Names {
		value, ok := attribute.Value.(string)
		if !ok {
			return false
		}
		switch attribute.Type.String() {
		case commonName:
			users = append(users, value)
		case organization:
			groups = append(groups, value)
		default:
			return false
		}
	}
	slices.Sort(groups)
	return slices.Equal(users, []string{as.User}) && slices.Equal(groups, as.Groups)
}

func checkKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSABits && bits <= maxRSABits {
			return nil
		}
	}
	return errors.New("the key must be ECDSA (P-256 or P-384), Ed25519, or RSA of 2048 to 4096 bits")
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: clusterv1.GroupVersion.Group, Resource: "clusters/kubeconfig"}
}
