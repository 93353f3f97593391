package direct

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/gateway/proxy"
)

const (
	// namePrefix starts the names of the CertificateSigningRequests.
	namePrefix = "elemental-direct-"
	// patience bounds the wait for a signer, pollInterval is how often it is looked for.
	patience     = 20 * time.Second
	pollInterval = 200 * time.Millisecond
	// cleanupTimeout bounds the deletion of a CertificateSigningRequest.
	cleanupTimeout = 10 * time.Second
	// clockSkew is how much later than asked for a certificate may end.
	clockSkew = 10 * time.Minute
)

// errLifetime says that a signer ignores the requested lifetime.
var errLifetime = errors.New("the signer of the cluster issues certificates that are valid for longer than was asked for")

// issuer has a workload cluster issue certificates.
type issuer struct {
	admin client.Client
	clock clock.WithTicker
}

// issued is a certificate, in both forms.
type issued struct {
	pem  []byte
	leaf *x509.Certificate
}

// issue requests, approves and awaits a certificate of the identity. It leaves nothing in the
// cluster.
func (i issuer) issue(ctx context.Context, request signingRequest, as proxy.Identity, ttl time.Duration) (issued, error) {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: namePrefix + string(uuid.NewUUID())},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request.pem, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: new(int32(ttl.Seconds())),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	latest := i.clock.Now().Add(ttl + clockSkew)
	// Whether a creation that was given up has happened is unknown: so it is not given up when
	// the caller hangs up, and the name is known in any case.
	defer i.remove(ctx, csr)
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := i.admin.Create(creating, csr); err != nil {
		return issued{}, fmt.Errorf("creating a CertificateSigningRequest: %w", err)
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "DirectAccess",
		Message: "The gateway of the management cluster has let the user in",
	})
	if err := i.admin.SubResource("approval").Update(ctx, csr); err != nil {
		return issued{}, fmt.Errorf("approving a CertificateSigningRequest: %w", err)
	}
	if err := i.await(ctx, csr); err != nil {
		return issued{}, err
	}
	return check(csr.Status.Certificate, request.key, as, latest)
}

// await reads the CertificateSigningRequest until it has a certificate.
func (i issuer) await(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	began := i.clock.Now()
	ticker := i.clock.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if err := i.admin.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return fmt.Errorf("getting a CertificateSigningRequest: %w", err)
		}
		if len(csr.Status.Certificate) > 0 {
			return nil
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return fmt.Errorf("the signer refuses: %s: %s", c.Reason, c.Message)
			}
		}
		if i.clock.Since(began) >= patience {
			return errors.New("no signer issues certificates: is kube-controller-manager running?")
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return fmt.Errorf("waiting for the signer: %w", context.Cause(ctx))
		}
	}
}

// remove deletes the CertificateSigningRequest, also after the caller has hung up. If that
// fails, kube-controller-manager deletes it within an hour.
func (i issuer) remove(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = i.admin.Delete(ctx, csr)
}

// check reads a certificate and compares it with the request: any signer may have issued it.
func check(chain []byte, key crypto.PublicKey, as proxy.Identity, latest time.Time) (issued, error) {
	block, _ := pem.Decode(chain)
	if block == nil {
		return issued{}, errors.New("the signer has issued no PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return issued{}, fmt.Errorf("reading the certificate: %w", err)
	}
	public, ok := leaf.PublicKey.(interface{ Equal(x crypto.PublicKey) bool })
	switch {
	case !ok || !public.Equal(key) || !isOf(leaf.Subject, as):
		return issued{}, errors.New("the signer has issued a certificate for another key, user or group")
	case leaf.NotAfter.After(latest):
		return issued{}, errLifetime
	}
	return issued{pem: chain, leaf: leaf}, nil
}
