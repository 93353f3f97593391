package etcdrestore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// record returns what a restore that begins remembers of hosts.
func record(hosts []*infrav1.ElementalHost) []infrav1.EtcdRestoreHost {
	var records []infrav1.EtcdRestoreHost
	for _, host := range hosts {
		records = append(records, infrav1.EtcdRestoreHost{HostName: host.Name, MachineName: host.Spec.Claim.MachineName, ClaimID: host.Spec.Claim.ID})
	}
	return records
}

// recorded returns copies of the recorded hosts that still have their claims.
func recorded(s *scope, records []infrav1.EtcdRestoreHost) []*infrav1.ElementalHost {
	var hosts []*infrav1.ElementalHost
	for _, other := range records {
		for _, host := range s.facts.Hosts {
			if host.Name == other.HostName && host.Spec.Claim.ID == other.ClaimID && host.Spec.Claim.Phase == infrav1.ClaimBound {
				hosts = append(hosts, host.DeepCopy())
			}
		}
	}
	return hosts
}

// haltOthers has the other control planes halted, and reports whether they are. If one can't be,
// the restore ends before it has changed anything on its host.
func (r *Reconciler) haltOthers(ctx context.Context, s *scope) (halted bool, err error) {
	id := s.restore.Spec.Request.ID
	var waiting []string
	for _, host := range recorded(s, s.restore.Spec.Request.Others) {
		if is := host.Spec.ControlPlaneHalt; is == nil || is.ID != id {
			want := &infrav1.HostControlPlaneHalt{ID: id, RestoreName: s.restore.Name, ReplaceHealthy: s.restore.Spec.ReplaceHealthy}
			if err := r.patchHost(ctx, host, "requesting the halt of the control plane on", func(h *infrav1.ElementalHost) { h.Spec.ControlPlaneHalt = want }); err != nil {
				return false, err
			}
		}
		op := host.Operation(infrav1.OperationControlPlaneHalt, id)
		switch {
		case op != nil && op.State == infrav1.OperationSucceeded, etcdrestore.IsOff(host):
		case op != nil && op.State != infrav1.OperationRunning:
			return false, r.conclude(ctx, s, infrav1.EtcdRestoreFailed, fmt.Sprintf("The control plane on host %s was not halted: %s", host.Name, op.Message))
		case !host.IsConnected():
			waiting = append(waiting, host.Name+", which is not connected: bring it online or, if it is off and stays off, fence it")
		case host.Spec.Fence != nil:
			waiting = append(waiting, host.Name+", which is fenced, but connected: unfence it, or turn it off")
		default:
			waiting = append(waiting, host.Name)
		}
	}
	if len(waiting) > 0 {
		s.condition = no(infrav1.RestoreWaitingForHostReason, "Waiting until the control plane is halted on %s", failover.JoinFirst(waiting, "; "))
	}
	return len(waiting) == 0, nil
}

// startOthers has the other control planes started that were halted for the restore.
func (r *Reconciler) startOthers(ctx context.Context, s *scope) error {
	if s.restore.Spec.Request == nil {
		return nil
	}
	for _, host := range recorded(s, s.restore.Spec.Request.Others) {
		is := host.Spec.ControlPlaneHalt
		if is == nil || is.ID != s.restore.Spec.Request.ID || ptr.Deref(is.Ended, false) {
			continue
		}
		if err := r.patchHost(ctx, host, "ending the halt of the control plane on", func(h *infrav1.ElementalHost) { h.Spec.ControlPlaneHalt.Ended = new(true) }); err != nil {
			return err
		}
	}
	return nil
}

// replaceOthers deletes the Machines of the other hosts, which no longer belong to the cluster of
// etcd. The Cluster is still paused, so the deletions proceed when it goes on: Cluster API's hook
// for members of etcd needs an API server.
func (r *Reconciler) replaceOthers(ctx context.Context, s *scope) error {
	for _, host := range recorded(s, s.restore.Spec.Request.Others) {
		machine, err := reconcile.Get(ctx, r.Client, host.Namespace, host.Spec.Claim.MachineName, &clusterv1.Machine{})
		if err != nil {
			return fmt.Errorf("getting Machine of host %s: %w", host.Name, err)
		}
		if machine == nil || !machine.DeletionTimestamp.IsZero() || machine.Spec.ClusterName != s.facts.Cluster.Name || !util.IsControlPlaneMachine(machine) {
			continue
		}
		if err := r.replace(ctx, s, machine.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

// replace deletes a Machine. Nothing runs on its Node that could be drained: its kubelet is stopped.
func (r *Reconciler) replace(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	status := func(m *clusterv1.Machine) *clusterv1.MachineStatus { return &m.Status }
	err := reconcile.PatchSpec(ctx, r.Client, machine, status, "preparing the deletion of Machine "+machine.Name, func(m *clusterv1.Machine) {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
		m.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation] = ""
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleting Machine whose member of etcd is not in the restored cluster", "Machine", klog.KObj(machine))
	if err := r.Client.Delete(ctx, machine, client.Preconditions{UID: &machine.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s: %w", machine.Name, err)
	}
	r.Recorder.Eventf(s.restore, machine, corev1.EventTypeNormal, "MachineReplaced", "Restore",
		"Deleted Machine %s: etcd was restored on host %s, and its control plane replaces the Machine", machine.Name, s.host.Name)
	return nil
}
