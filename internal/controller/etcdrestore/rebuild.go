package etcdrestore

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rebuild"
)

// readRebuild finds out whether the control plane of the host can be set up again, if the restore
// asks for that. What stands in the way is a reason to refuse, which people can read. The host gets
// the configuration when it asks.
func (r *Reconciler) readRebuild(ctx context.Context, s *scope) error {
	if !ptr.Deref(s.restore.Spec.RebuildControlPlane, false) || s.host == nil || s.host.Spec.Claim == nil {
		return nil
	}
	name := s.host.Spec.Claim.MachineName
	machine, err := reconcile.Get(ctx, r.Client, s.host.Namespace, name, &clusterv1.Machine{})
	switch {
	case err != nil:
		return fmt.Errorf("getting Machine of host %s: %w", s.host.Name, err)
	case machine == nil:
		s.facts.CantRebuild = fmt.Errorf("there is no Machine %s", name)
	case machine.Spec.Bootstrap.DataSecretName == nil:
		s.facts.CantRebuild = errors.New("its Machine has no bootstrap data")
	default:
		_, s.facts.CantRebuild = rebuild.Config(ctx, r.APIReader, s.facts.Cluster, machine)
	}
	if s.facts.CantRebuild != nil {
		s.recheck = again
		ctrl.LoggerFrom(ctx).Info("The control plane can't be set up again", "reason", s.facts.CantRebuild.Error())
	}
	return nil
}
