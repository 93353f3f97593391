package server

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

const (
	bootstrapDataKey   = "value"
	bootstrapFormatKey = "format"
)

// bootstrap returns the bootstrap data of the host's machine.
//
// The host object names no Secret, so who may edit hosts can't have foreign
// Secrets served: the data is found through the claim's Machine, the claim's other
// half is on its ElementalMachine, and each link of the chain must point both ways.
func (s *Server) bootstrap(w http.ResponseWriter, r *http.Request, who caller) error {
	if after, ok := s.presence.allowReport(client.ObjectKeyFromObject(who.host)); !ok {
		return errTooMany(after)
	}
	operation, err := parameter(r, "operation")
	if err != nil {
		return err
	}
	// The cache may lag behind a release or the end of an earlier bootstrap.
	host, err := s.hosts.read(r.Context(), client.ObjectKeyFromObject(who.host))
	if err != nil {
		return err
	}
	if !holds(host, who.fingerprint) {
		return errUnknownHost()
	}
	if host.Spec.Fence != nil {
		return errFenced()
	}
	secret, err := s.bootstrapSecret(r.Context(), host, operation)
	if err != nil {
		return err
	}
	data := secret.Data[bootstrapDataKey]
	if len(data) == 0 || len(data) > protocol.MaxBootstrapBytes {
		return errNoOperation(http.StatusNotFound)
	}
	format := string(secret.Data[bootstrapFormatKey])
	if format == "" {
		format = protocol.FormatCloudConfig
	}
	s.audit(r.Context(), decidedBootstrapServed, host, "operation", operation, "clusterName", host.Spec.Claim.ClusterName,
		"machineName", host.Spec.Claim.MachineName)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(protocol.HeaderBootstrapFormat, format)
	w.WriteHeader(http.StatusOK)
	// A caller that has gone away asks again.
	_, _ = w.Write(data)
	return nil
}

// bootstrapSecret follows host, claim, Machine, ElementalMachine to the Secret.
func (s *Server) bootstrapSecret(ctx context.Context, host *infrav1.ElementalHost, operation string) (*corev1.Secret, error) {
	none := errNoOperation(http.StatusNotFound)
	if !bootstraps(host, operation) {
		return nil, none
	}
	claim := host.Spec.Claim
	machine := &clusterv1.Machine{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: claim.MachineName}, machine); err != nil {
		return nil, orNone(client.IgnoreNotFound(err), none)
	}
	if machine.Spec.ClusterName != claim.ClusterName || machine.Spec.Bootstrap.DataSecretName == nil {
		return nil, none
	}
	if chosen, err := s.chosen(ctx, host, machine); err != nil || !chosen {
		return nil, orNone(err, none)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: host.Namespace, Name: *machine.Spec.Bootstrap.DataSecretName}
	if err := s.live.Get(ctx, key, secret); err != nil {
		return nil, orNone(client.IgnoreNotFound(err), none)
	}
	if secret.Type != clusterv1.ClusterSecretType || secret.Labels[clusterv1.ClusterNameLabel] != claim.ClusterName {
		return nil, none
	}
	return secret, nil
}

// bootstraps tells whether the host is to run this bootstrap and has not yet
// reported its end.
func bootstraps(host *infrav1.ElementalHost, operation string) bool {
	claim := host.Spec.Claim
	if claim == nil || claim.Phase != infrav1.ClaimBound || claim.ID == "" || claim.ID != operation ||
		host.Spec.Approval != infrav1.ApprovalApproved || !host.DeletionTimestamp.IsZero() {
		return false
	}
	op := host.Operation(infrav1.OperationBootstrap, claim.ID)
	return op == nil || !ended(*op)
}

// chosen tells whether the Machine's ElementalMachine has the other half of the
// host's claim. The cache may not show it yet, as the host's watch was quicker.
func (s *Server) chosen(ctx context.Context, host *infrav1.ElementalHost, machine *clusterv1.Machine) (bool, error) {
	ref := machine.Spec.InfrastructureRef
	if ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != "ElementalMachine" {
		return false, nil
	}
	for _, reader := range []client.Reader{s.client, s.live} {
		is := &infrav1.ElementalMachine{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: ref.Name}, is)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("getting ElementalMachine: %w", err)
		}
		if err != nil || is.Spec.HostRef == nil || is.Spec.HostRef.Name != host.Name || is.Spec.HostRef.ClaimID != host.Spec.Claim.ID {
			continue
		}
		owner := ownerMachine(is)
		return owner != nil && owner.Name == machine.Name && owner.UID == machine.UID && is.DeletionTimestamp.IsZero(), nil
	}
	return false, nil
}

func ownerMachine(m *infrav1.ElementalMachine) *metav1.OwnerReference {
	for i := range m.OwnerReferences {
		ref := &m.OwnerReferences[i]
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && gv.Group == clusterv1.GroupVersion.Group && ref.Kind == "Machine" {
			return ref
		}
	}
	return nil
}

// orNone returns err if there is one: what is missing is told apart from what
// could not be found out.
func orNone(err, none error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return none
	}
	return fmt.Errorf("finding bootstrap data: %w", err)
}
