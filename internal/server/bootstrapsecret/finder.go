package bootstrapsecret

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Keys of a bootstrap data Secret, as in Cluster API's contract.
const (
	dataKey   = "value"
	formatKey = "format"
)

// Finder finds bootstrap data. It is safe for concurrent use.
type Finder struct {
	client client.Reader
	live   client.Reader
}

// NewFinder returns a Finder. The client reads from a cache, live from the API server.
func NewFinder(c, live client.Reader) *Finder { return &Finder{client: c, live: live} }

// Find returns the data and its format for the host's current bootstrap operation. The host
// must be the newest state. The problem is the same for everything that does not fit:
// NoOperation.
func (f *Finder) Find(ctx context.Context, host *infrav1.ElementalHost, operation string) (data []byte, format string, err error) {
	if !mayBootstrap(host, operation) {
		return nil, "", problem.NoOperation(http.StatusNotFound)
	}
	data, format, _, err = f.Again(ctx, host)
	return data, format, err
}

// Again returns the data that the host was bootstrapped with, its format, and the Machine whose it
// is. The caller has decided that the host may have it once more. The host must be the newest state.
func (f *Finder) Again(ctx context.Context, host *infrav1.ElementalHost) (data []byte, format string, machine *clusterv1.Machine, err error) {
	if !isAccepted(host) {
		return nil, "", nil, problem.NoOperation(http.StatusNotFound)
	}
	secret, machine, err := f.secret(ctx, host)
	if err != nil {
		return nil, "", nil, err
	}
	data = secret.Data[dataKey]
	if len(data) == 0 || len(data) > protocol.MaxBootstrapBytes {
		return nil, "", nil, problem.NoOperation(http.StatusNotFound)
	}
	format = string(secret.Data[formatKey])
	if format == "" {
		format = protocol.FormatCloudConfig
	}
	return data, format, machine, nil
}

// secret follows the references from host and claim to Machine, ElementalMachine and Secret.
func (f *Finder) secret(ctx context.Context, host *infrav1.ElementalHost) (*corev1.Secret, *clusterv1.Machine, error) {
	notFound := problem.NoOperation(http.StatusNotFound)
	claim := host.Spec.Claim
	machine := &clusterv1.Machine{}
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: claim.MachineName}, machine); err != nil {
		return nil, nil, notFoundOr(client.IgnoreNotFound(err), notFound)
	}
	if machine.Spec.ClusterName != claim.ClusterName || machine.Spec.Bootstrap.DataSecretName == nil {
		return nil, nil, notFound
	}
	if refers, err := f.refersToHost(ctx, machine, host); err != nil || !refers {
		return nil, nil, notFoundOr(err, notFound)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: host.Namespace, Name: *machine.Spec.Bootstrap.DataSecretName}
	if err := f.live.Get(ctx, key, secret); err != nil {
		return nil, nil, notFoundOr(client.IgnoreNotFound(err), notFound)
	}
	if !ownership.IsBootstrapData(secret, machine) {
		return nil, nil, notFound
	}
	return secret, machine, nil
}

// mayBootstrap reports whether the host is to run this bootstrap operation and has not yet
// reported its end. A host whose Node is taken over never gets bootstrap data: with it, an agent
// that does not know adoptions would initialize another control plane.
func mayBootstrap(host *infrav1.ElementalHost, operation string) bool {
	if !isAccepted(host) || host.Spec.Claim.ID != operation || host.Spec.Claim.Adoption != nil {
		return false
	}
	op := host.Operation(infrav1.OperationBootstrap, operation)
	return op == nil || !facts.OperationEnded(*op)
}

// isAccepted reports whether the host is approved and claimed.
func isAccepted(host *infrav1.ElementalHost) bool {
	claim := host.Spec.Claim
	return claim != nil && claim.Phase == infrav1.ClaimBound && claim.ID != "" &&
		host.Spec.Approval == infrav1.ApprovalApproved && host.DeletionTimestamp.IsZero()
}

// refersToHost reports whether the Machine's ElementalMachine names the host and its claim.
// If the cached one does not, it may be older than the claim, so the API server is asked.
func (f *Finder) refersToHost(ctx context.Context, machine *clusterv1.Machine, host *infrav1.ElementalHost) (bool, error) {
	ref := machine.Spec.InfrastructureRef
	if ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != ownership.InfraMachineKind {
		return false, nil
	}
	for _, reader := range []client.Reader{f.client, f.live} {
		infra := &infrav1.ElementalMachine{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: ref.Name}, infra)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("getting ElementalMachine: %w", err)
		}
		if err != nil || infra.Spec.HostRef == nil || infra.Spec.HostRef.Name != host.Name || infra.Spec.HostRef.ClaimID != host.Spec.Claim.ID {
			continue
		}
		return ownership.IsInfraMachine(infra, machine) && infra.DeletionTimestamp.IsZero(), nil
	}
	return false, nil
}

// notFoundOr returns notFound if err is nil or a NotFound error, and otherwise err.
func notFoundOr(err, notFound error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return notFound
	}
	return fmt.Errorf("finding bootstrap data: %w", err)
}
