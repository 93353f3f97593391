package upgrade

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

// hasHold reports whether the Cluster has the label that holds upgrades back.
func hasHold(cluster *clusterv1.Cluster) bool {
	_, found := cluster.Labels[infrav1.HoldUpgradeLabel]
	return found
}

// mayBegin reports whether an upgrade may begin: the cluster's upgrades are not held back. The
// wanted version is read past the cache, so the cached Cluster may be older, and lack a label
// that was set before the version. So the Cluster is read past the cache too.
func (r *Reconciler) mayBegin(ctx context.Context, s *scope) (bool, error) {
	if hasHold(s.cluster) {
		return false, nil
	}
	live, err := reconcile.Get(ctx, r.APIReader, s.cluster.Namespace, s.cluster.Name, &clusterv1.Cluster{})
	if err != nil {
		return false, fmt.Errorf("reading Cluster %s past the cache: %w", s.cluster.Name, err)
	}
	return live != nil && !hasHold(live), nil
}

// held returns the condition for a host whose upgrade to the target is held back. A host that
// still fetches the bundle is not ready to be released, so that comes first.
func held(s *scope, target inplace.Target) *metav1.Condition {
	label := fmt.Sprintf("the label %s of Cluster %s", infrav1.HoldUpgradeLabel, s.cluster.Name)
	if target.Version == "" {
		return no(infrav1.UpgradeHeldReason, "Host %s is to upgrade to %s, and %s holds its upgrade back; remove the label to release it", s.host.Name, target, label)
	}
	switch staged := s.host.StagedBundle(); {
	case staged != nil && staged.SHA256 == bundleOf(s).SHA256 && staged.State == infrav1.BundleStaged:
		return no(infrav1.UpgradeHeldReason, "Host %s has the bundle of %s, and %s holds its upgrade back; remove the label to release it",
			s.host.Name, target, label)
	case !s.host.IsConnected():
		return no(infrav1.UpgradeHostNotConnectedReason, "Host %s fetches the bundle of %s when it is connected; then %s holds its upgrade back",
			s.host.Name, target, label)
	case staged != nil && staged.SHA256 == bundleOf(s).SHA256:
		return staging(s.host)
	default:
		return no(infrav1.UpgradeStagingReason, "Host %s is to fetch the bundle of %s; then %s holds its upgrade back", s.host.Name, target, label)
	}
}
