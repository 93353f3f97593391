package endpoint

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
)

// publish writes a changed endpoint to the Cluster. Cluster API copies the endpoint
// from the infrastructure only while the Cluster's own is blank.
func (r *Reconciler) publish(ctx context.Context, s *scope.Scope) error {
	endpoint := s.InfraCluster.Spec.ControlPlaneEndpoint.WithDefaultPort()
	want := clusterv1.APIEndpoint{Host: endpoint.Host, Port: endpoint.Port}
	if current := s.Cluster.Spec.ControlPlaneEndpoint; !current.IsValid() || current == want {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Changing the Cluster's endpoint", "from", s.Cluster.Spec.ControlPlaneEndpoint.String(), "to", want.String())
	before := s.Cluster.DeepCopy()
	s.Cluster.Spec.ControlPlaneEndpoint = want
	if err := r.Client.Patch(ctx, s.Cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing the Cluster's endpoint: %w", err)
	}
	return nil
}
