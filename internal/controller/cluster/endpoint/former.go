package endpoint

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/cluster-api/util/secret"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// replaceFormerEndpoints replaces former endpoints in the objects of the management
// cluster, except the Cluster, and names the objects that still have one. retryAt is
// when to continue; zero if nothing is left to do.
func (r *Reconciler) replaceFormerEndpoints(ctx context.Context, s *scope.Scope, c failover.Cluster) (pending []string, retryAt time.Time, _ error) {
	replaced := areKubeconfigsReplaced(s, c)
	moved := s.InfraCluster.EndpointMovedAt()
	if replaced && moved.IsZero() {
		return nil, time.Time{}, nil
	}
	if !replaced {
		for _, purpose := range []secret.Purpose{secret.Kubeconfig, userKubeconfig} {
			unchanged, err := r.updateKubeconfig(ctx, s, secret.Name(s.Cluster.Name, purpose))
			if err != nil {
				return nil, time.Time{}, err
			}
			pending = append(pending, unchanged...)
		}
	}
	// A bootstrap that runs during a move may fail long after it is complete.
	machines, retryAt, err := r.outdated().deleteFailedOrUnused(ctx, s, c)
	if err != nil {
		return nil, time.Time{}, err
	}
	if end := moved.Add(staleReadTime); c.Now.Before(end) && (retryAt.IsZero() || end.Before(retryAt)) {
		retryAt = end // for Machines that the cache does not show yet
	}
	return append(pending, machines...), retryAt, nil
}

// areKubeconfigsReplaced reports whether no kubeconfig of the management cluster still
// has a former endpoint. Without a move in progress no Secrets are read.
func areKubeconfigsReplaced(s *scope.Scope, c failover.Cluster) bool {
	if len(s.InfraCluster.Spec.ControlPlaneEndpointPolicy.FormerEndpoints) == 0 {
		return true
	}
	if last := c.LastMove(); last != nil {
		return !last.CompletedAt.IsZero() && !c.Now.Before(last.StartedAt.Add(staleReadTime))
	}
	followed := meta.FindStatusCondition(s.InfraCluster.Status.Conditions, infrav1.ControlPlaneEndpointFollowedCondition)
	return followed != nil && followed.Reason == infrav1.EndpointFollowedReason && followed.ObservedGeneration == s.InfraCluster.Generation
}
