package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// adoptionOf returns what the Node on the host must be, for the machine to take it over; nil for a
// host without a declared Node. The claim records it, so that the plan depends on nothing else.
// live reads from the API server.
func adoptionOf(ctx context.Context, live client.Reader, s *scope, host *infrav1.ElementalHost) (*infrav1.ClaimAdoption, error) {
	if !host.IsAdoptable() {
		return nil, nil
	}
	hash, err := authorityHash(ctx, live, s)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority of Cluster %s: %w", s.cluster.Name, err)
	}
	endpoint := s.cluster.Spec.ControlPlaneEndpoint
	return &infrav1.ClaimAdoption{AuthorityHash: hash, Endpoint: endpoint.String(), Version: s.owner.Spec.Version}, nil
}

// authorityHash returns the hash of the public key in the Secret <cluster>-ca, which the
// administrator has made before the Cluster.
func authorityHash(ctx context.Context, live client.Reader, s *scope) (string, error) {
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: secret.Name(s.cluster.Name, secret.ClusterCA)}
	authority := &corev1.Secret{}
	if err := live.Get(ctx, key, authority); err != nil {
		return "", fmt.Errorf("getting Secret %s: %w", key.Name, err)
	}
	certificate, err := certs.DecodeCertPEM(authority.Data[secret.TLSCrtDataName])
	if err != nil {
		return "", fmt.Errorf("parsing %s of Secret %s: %w", secret.TLSCrtDataName, key.Name, err)
	}
	if certificate == nil {
		return "", fmt.Errorf("parsing %s of Secret %s: it has no certificate", secret.TLSCrtDataName, key.Name)
	}
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// finishAdoption makes the host an ordinary one of its machine, which has taken over its Node. It
// comes before the providerID: a machine with one resets its host when it is deleted.
func finishAdoption(ctx context.Context, c client.Client, recorder events.EventRecorder, s *scope) error {
	if s.host.Spec.Claim.Adoption == nil {
		return nil
	}
	if err := claim.FinishAdoption(ctx, c, s.host, s.machine.Spec.HostRef.ClaimID); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Took over a Node", "ElementalHost", klog.KObj(s.host))
	recorder.Eventf(s.machine, s.host, corev1.EventTypeNormal, infrav1.AdoptedReason, "Adopt", "Took over the Node on host %s", s.host.Name)
	return nil
}
