package endpoint

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// Contacts asks hosts for new reports of the endpoint.
type Contacts interface {
	// Ask asks a host, unless it was asked a short time ago, and returns its answer so far.
	Ask(host types.NamespacedName) failover.Contact
}

// Reconciler provides endpoints that are addresses of hosts. Several goroutines may
// use it.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache.
	APIReader client.Reader
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	Reader    scope.Reader
	// Nominations are hosts that other reconciles are about to claim.
	Nominations *placement.Nominations
	// Contacts are those of the agent API; nil if nobody can be asked. Then no endpoint
	// moves because its host is dead.
	Contacts Contacts
	// Searches are the constraints of clusters that found no host to reserve.
	Searches *scope.Cache[placement.Constraints]
}

// Outcome is the result of reconciling an endpoint that is a host's address. With an
// error it holds what was determined before.
type Outcome struct {
	scope.Endpoint

	// Progress of the last move; nil if the endpoint is not in use yet.
	Progress *failover.Progress
	// Hooks says which Machines carry the endpoint's hook.
	Hooks HookPlan
}

// Reconcile reserves a host for the endpoint, and moves the endpoint once it is in use.
// It updates status.endpoint in memory.
func (r *Reconciler) Reconcile(ctx context.Context, s *scope.Scope) (Outcome, error) {
	hosts, err := r.Reader.ClaimedHosts(ctx, s.InfraCluster.Namespace, s.Cluster.Name)
	if err != nil {
		return Outcome{}, err
	}
	if s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef == nil {
		state, err := r.chooseHost(ctx, s, hosts)
		return Outcome{Endpoint: state}, err
	}
	host, err := r.endpointHost(ctx, s, hosts)
	if err != nil {
		return Outcome{}, err
	}
	inUse, err := r.isInUse(ctx, s, host)
	if err != nil {
		return Outcome{}, err
	}
	if inUse {
		return r.reconcileActiveEndpoint(ctx, s, hosts, host)
	}
	state, keep, err := r.keepHost(ctx, s, host)
	if err != nil || keep {
		return Outcome{Endpoint: state}, err
	}
	state, err = r.chooseHost(ctx, s, hosts)
	return Outcome{Endpoint: state}, err
}

// endpointHost returns the host that hostRef names, or nil if it does not exist.
func (r *Reconciler) endpointHost(ctx context.Context, s *scope.Scope, hosts map[string]*infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	name := s.InfraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.Name
	if host := hosts[name]; host != nil {
		return host, nil
	}
	// The host is not reserved yet, is not the cluster's any more, or the cache is
	// outdated.
	host := &infrav1.ElementalHost{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.InfraCluster.Namespace, Name: name}, host)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading host %s: %w", name, err)
	}
	if err != nil {
		return nil, nil //nolint:nilerr // it does not exist
	}
	return host, nil
}
