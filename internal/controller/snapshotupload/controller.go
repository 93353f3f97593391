package snapshotupload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bucket"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/snapshotrelay"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// timeout bounds one look at a destination.
	timeout = time.Minute
	// again is how long after a look the next one follows if nothing changes, and afterError
	// if the destination can't be used.
	again      = time.Hour
	afterError = 2 * time.Minute
)

// Reconciler reconciles the destinations of ElementalClusters. Several workers may run at
// once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads Secrets from the API server.
	APIReader client.Reader
	// Recorder records Events on ElementalClusters.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Relays are the storages to which the manager carries connections of hosts.
	Relays snapshotrelay.Endpoints
	// Metrics counts uploads; nil counts nothing.
	Metrics *Metrics
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must
	// have; blank for all.
	WatchFilter string
}

// Reconcile reconciles the destination of one cluster. It needs no finalizer: snapshots at the
// destination outlive their cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	infra := &infrav1.ElementalCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(infra, r.WatchFilter) || annotations.IsExternallyManaged(infra) || !infra.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := infra.Status.DeepCopy()
	var after time.Duration
	if policy := infra.Spec.EtcdSnapshots; policy == nil || policy.Destination == nil {
		infra.Status.EtcdSnapshots = nil
		meta.RemoveStatusCondition(&infra.Status.Conditions, infrav1.EtcdSnapshotsUploadedCondition)
	} else {
		cluster, err := r.owner(ctx, infra)
		if err != nil {
			return ctrl.Result{}, err
		}
		if cluster == nil || !cluster.DeletionTimestamp.IsZero() || annotations.IsPaused(cluster, infra) {
			return ctrl.Result{}, nil
		}
		if after, err = r.observe(ctx, infra, cluster.Name); err != nil {
			return ctrl.Result{}, err
		}
	}
	_, err := reconcile.PatchStatus(ctx, r.Client, infra, func(c *infrav1.ElementalCluster) *infrav1.ElementalClusterStatus { return &c.Status }, before)
	if err == nil {
		r.record(infra, before)
	}
	return reconcile.RequeueConflict(ctrl.Result{RequeueAfter: after}, err)
}

// owner returns the Cluster that the ElementalCluster belongs to; nil if they don't refer to
// each other, which the condition Ready says.
func (r *Reconciler) owner(ctx context.Context, infra *infrav1.ElementalCluster) (*clusterv1.Cluster, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if err = client.IgnoreNotFound(err); err != nil {
		return nil, fmt.Errorf("getting owner Cluster: %w", err)
	}
	if cluster == nil || !ownership.IsInfraCluster(infra, cluster) {
		return nil, nil
	}
	return cluster, nil
}

// observe sets status from the destination, and returns when to look again. It returns an
// error only if the management cluster fails.
func (r *Reconciler) observe(ctx context.Context, infra *infrav1.ElementalCluster, cluster string) (time.Duration, error) {
	host, err := r.uploading(ctx, infra)
	if err != nil {
		return 0, err
	}
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if folder := infra.Spec.EtcdSnapshots.Destination.Folder; folder != nil {
		r.listFolder(infra, *folder, host)
	} else {
		err = r.look(looking, infra, cluster, host)
	}
	condition, recheck := judge(infra, host, err, r.Clock.Now())
	reconcile.SetConditions(&infra.Status.Conditions, infra.Generation, r.Clock.Now(), condition)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The destination of snapshots can't be used", "reason", err.Error())
		return afterError, nil
	}
	return recheck, nil
}

// look lists the snapshots in the bucket in status, and removes the old ones.
func (r *Reconciler) look(ctx context.Context, infra *infrav1.ElementalCluster, cluster string, host *infrav1.ElementalHost) error {
	policy := infra.Spec.EtcdSnapshots
	b, err := bucket.Open(ctx, r.APIReader, infra.Namespace, cluster, *policy.Bucket())
	if err != nil {
		return err
	}
	defer b.Close()
	objects, err := b.List(ctx)
	if err != nil {
		return err
	}
	keep, old := split(objects, policy.OffHosts())
	items, err := describe(ctx, b, keep, infra.Status.EtcdSnapshots, host)
	if err != nil {
		return err
	}
	r.list(infra, items)
	for _, object := range old {
		ctrl.LoggerFrom(ctx).Info("Removing an old snapshot of etcd from its destination", "object", object.Name)
		if err := b.Remove(ctx, object.Name); err != nil {
			return err
		}
		r.Metrics.removed()
	}
	if policy.Destination.Route == infrav1.EtcdSnapshotRouteManager {
		_, err = r.Relays.Check(policy.Bucket().Endpoint)
	}
	return err
}

// uploading returns the host that has the last snapshot; nil before the first one.
func (r *Reconciler) uploading(ctx context.Context, infra *infrav1.ElementalCluster) (*infrav1.ElementalHost, error) {
	record := infra.Spec.EtcdSnapshotRecord
	if record == nil || record.Last == nil {
		return nil, nil
	}
	host, err := reconcile.Get(ctx, r.Client, infra.Namespace, record.Last.HostName, &infrav1.ElementalHost{})
	if err != nil {
		return nil, fmt.Errorf("getting ElementalHost %s: %w", record.Last.HostName, err)
	}
	return host, nil
}

// record counts uploads and records Events of them, and of a condition that has become False.
func (r *Reconciler) record(infra *infrav1.ElementalCluster, before *infrav1.ElementalClusterStatus) {
	if before.EtcdSnapshots != nil && infra.Status.EtcdSnapshots != nil {
		for i := range infra.Status.EtcdSnapshots.Items {
			item := &infra.Status.EtcdSnapshots.Items[i]
			if isNewer(item, before.EtcdSnapshots.Items) {
				r.Metrics.uploaded()
				r.Recorder.Eventf(infra, nil, corev1.EventTypeNormal, infrav1.EtcdSnapshotUploadedReason, "UploadSnapshot",
					"Host %s has uploaded snapshot %s of etcd as %s, %d bytes", item.HostName, item.ID, item.Object, item.SizeBytes)
			}
		}
	}
	was := meta.FindStatusCondition(before.Conditions, infrav1.EtcdSnapshotsUploadedCondition)
	is := meta.FindStatusCondition(infra.Status.Conditions, infrav1.EtcdSnapshotsUploadedCondition)
	if is == nil || was != nil && was.Reason == is.Reason {
		return
	}
	switch is.Reason {
	case infrav1.EtcdUploadFailedReason:
		r.warn(infra, infrav1.EtcdUploadFailedReason, is.Message)
	case infrav1.EtcdUploadOverdueReason:
		r.warn(infra, infrav1.EtcdUploadOverdueReason, is.Message)
	case infrav1.DestinationUnusableReason:
		r.warn(infra, infrav1.DestinationUnusableReason, is.Message)
	}
}

func (r *Reconciler) warn(infra *infrav1.ElementalCluster, reason, message string) {
	r.Metrics.failed()
	r.Recorder.Eventf(infra, nil, corev1.EventTypeWarning, reason, "UploadSnapshot", "%s", message)
}
