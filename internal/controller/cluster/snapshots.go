package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshot"
)

// reconcileSnapshots records which host is asked for a snapshot of etcd, and which snapshot
// was taken. The patch is a compare-and-swap, so of several managers one asks a host.
func (r *Reconciler) reconcileSnapshots(ctx context.Context, s *run) error {
	record := s.InfraCluster.Spec.EtcdSnapshotRecord
	if s.InfraCluster.Spec.EtcdSnapshots == nil && record == nil || !s.Cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	hosts, err := r.reader().ClaimedHosts(ctx, s.InfraCluster.Namespace, s.Cluster.Name)
	if err != nil {
		return err
	}
	d := snapshot.Decide(snapshot.Cluster{Infra: s.InfraCluster, Hosts: hosts, Now: r.Clock.Now()})
	if !equality.Semantic.DeepEqual(d.Record, record) {
		if d.Record != nil && d.Record.Request != nil {
			ctrl.LoggerFrom(ctx).Info("Asking a host for a snapshot of etcd", "ElementalHost", klog.KRef(s.InfraCluster.Namespace, d.Record.Request.HostName),
				"snapshot", infrav1.EtcdSnapshotID(d.Record.Request.ScheduledAt))
		}
		err := scope.PatchSpec(ctx, r.Client, &s.Scope, "recording snapshots of etcd", func(c *infrav1.ElementalCluster) {
			c.Spec.EtcdSnapshotRecord = d.Record
		})
		if err != nil {
			return err
		}
		r.recordSnapshots(s, d)
	}
	s.snapshots = d
	return nil
}

// recordSnapshots counts snapshots and records Events of them, once what they tell is in spec.
func (r *Reconciler) recordSnapshots(s *run, d snapshot.Decision) {
	if d.Taken != nil {
		r.Metrics.snapshot(snapshotTaken)
		r.Recorder.Eventf(s.InfraCluster, d.TakenBy, corev1.EventTypeNormal, infrav1.EtcdSnapshotTakenReason, "TakeSnapshot",
			"Host %s has taken snapshot %s of etcd, %d bytes", d.TakenBy.Name, d.Taken.ID, d.Taken.SizeBytes)
	}
	if d.GivenUp != nil {
		r.Metrics.snapshot(snapshotFailed)
		r.Recorder.Eventf(s.InfraCluster, nil, corev1.EventTypeWarning, infrav1.EtcdSnapshotFailedReason, "TakeSnapshot",
			"Host %s has not taken snapshot %s of etcd: %s", d.GivenUp.HostName, infrav1.EtcdSnapshotID(d.GivenUp.ScheduledAt), d.GivenUpBecause)
	}
}
