package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// publish brings an exchanged endpoint to the Cluster. Cluster API copies the
// endpoint from the infrastructure only while its own is blank, and never again.
func (r *Reconciler) publish(ctx context.Context, s *scope) error {
	want := clusterv1.APIEndpoint{Host: s.infraCluster.Spec.ControlPlaneEndpoint.Host, Port: s.infraCluster.Spec.ControlPlaneEndpoint.Port}
	if is := s.cluster.Spec.ControlPlaneEndpoint; !is.IsValid() || is == want {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Changing the Cluster's endpoint", "from", s.cluster.Spec.ControlPlaneEndpoint.String(), "to", want.String())
	before := s.cluster.DeepCopy()
	s.cluster.Spec.ControlPlaneEndpoint = want
	if err := r.Client.Patch(ctx, s.cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing the Cluster's endpoint: %w", err)
	}
	return nil
}

// deleteOutdated deletes control-plane Machines whose bootstrap data was made
// for an endpoint that was exchanged since, and that no host was given. Their
// owner makes others. The data itself is never edited: the bootstrap provider
// writes it once.
func (r *Reconciler) deleteOutdated(ctx context.Context, s *scope) error {
	machines := &clusterv1.MachineList{}
	err := r.Client.List(ctx, machines, client.InNamespace(s.cluster.Namespace),
		client.MatchingFields{index.MachineByCluster: s.cluster.Name}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return fmt.Errorf("listing control-plane Machines: %w", err)
	}
	chosenAt := s.infraCluster.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt
	for i := range machines.Items {
		m := &machines.Items[i]
		if !m.DeletionTimestamp.IsZero() || !m.CreationTimestamp.Before(&chosenAt) ||
			m.Spec.Bootstrap.ConfigRef.Kind != "KubeadmConfig" || !util.IsControlPlaneMachine(m) {
			continue
		}
		hosts := &infrav1.ElementalHostList{}
		if err := r.Client.List(ctx, hosts, client.InNamespace(m.Namespace), client.MatchingFields{index.HostByMachine: m.Name}); err != nil {
			return fmt.Errorf("listing hosts of Machine %s: %w", m.Name, err)
		}
		if len(hosts.Items) > 0 {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Deleting Machine whose bootstrap data names a former endpoint", "Machine", klog.KObj(m))
		if err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
		}
		r.Recorder.Eventf(s.infraCluster, m, corev1.EventTypeNormal, "MachineOutdated", "Exchange",
			"Deleted Machine %s: its bootstrap data names a former endpoint and no host had it yet", m.Name)
	}
	return nil
}
