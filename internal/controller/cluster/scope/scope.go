package scope

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

const (
	// ControlPlaneDelay is the interval at which a cluster looks for a control plane
	// or machine template that does not exist yet. Neither is watched.
	ControlPlaneDelay = 10 * time.Second
	// BatchDelay is how long changes of workers' hosts and of free hosts are collected.
	// They come by the thousand, and each reconcile reads many hosts.
	BatchDelay = time.Second
)

// Scope holds the objects of one reconcile.
type Scope struct {
	InfraCluster *infrav1.ElementalCluster
	// Cluster is nil unless it and the ElementalCluster refer to each other.
	Cluster *clusterv1.Cluster
	// FormerCluster is the name of a Cluster whose reservations and hooks may be removed
	// although Cluster is nil; blank for none.
	FormerCluster string
}

// Endpoint is the outcome of reconciling the control plane endpoint.
type Endpoint struct {
	// Ready, Reason and Message are for the condition ControlPlaneEndpointReady. A
	// blank Reason means that nothing was decided.
	Ready           bool
	Reason, Message string
	// Published reports whether spec has an endpoint that is in use, even if it does
	// not answer.
	Published bool
	// RequeueAfter is when to reconcile again without a change; zero: never.
	RequeueAfter time.Duration
}

// ClusterName returns the name of the Cluster whose reservations and hooks may be
// removed; blank for none.
func ClusterName(s *Scope) string {
	if s.Cluster != nil {
		return s.Cluster.Name
	}
	return s.FormerCluster
}

// PatchSpec changes spec or metadata of the ElementalCluster. It fails with a conflict
// if the object has changed since it was read. Status in memory is kept.
func PatchSpec(ctx context.Context, c client.Client, s *Scope, doing string, change func(*infrav1.ElementalCluster)) error {
	return reconcile.PatchSpec(ctx, c, s.InfraCluster, Status, doing, change)
}

// Status returns the status of an ElementalCluster, to be changed.
func Status(c *infrav1.ElementalCluster) *infrav1.ElementalClusterStatus { return &c.Status }
