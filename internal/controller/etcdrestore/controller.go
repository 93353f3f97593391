package etcdrestore

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/ownership"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementaletcdrestores,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementaletcdrestores/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles ElementalEtcdRestores. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads Secrets from the API server.
	APIReader client.Reader
	// Recorder records Events on ElementalEtcdRestores.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// DisconnectGrace is how long an agent may be away before its host counts as disconnected.
	DisconnectGrace time.Duration
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must
	// have; blank for all.
	WatchFilter string
}

// scope holds what one reconcile has read and found out. It has no methods.
type scope struct {
	restore *infrav1.ElementalEtcdRestore
	facts   etcdrestore.Facts
	// host is the host that etcd is restored on; nil if the Cluster has no such host.
	host *infrav1.ElementalHost
	// infra is the ElementalCluster of the Cluster; nil without one.
	infra *infrav1.ElementalCluster
	// condition is Restored.
	condition metav1.Condition
	// recheck is when to look again if nothing changes; 0: not before something changes.
	recheck time.Duration
}

func statusOf(r *infrav1.ElementalEtcdRestore) *infrav1.ElementalEtcdRestoreStatus { return &r.Status }

// Reconcile reconciles one ElementalEtcdRestore.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	restore := &infrav1.ElementalEtcdRestore{}
	if err := r.Client.Get(ctx, req.NamespacedName, restore); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(restore, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	s, err := r.read(ctx, restore)
	if err != nil {
		return ctrl.Result{}, err
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KRef(restore.Namespace, restore.Spec.ClusterName)))
	before := restore.Status.DeepCopy()
	if err := r.step(ctx, s); err != nil {
		return reconcile.RequeueConflict(ctrl.Result{}, err)
	}
	return reconcile.RequeueConflict(ctrl.Result{RequeueAfter: s.recheck}, r.patchStatus(ctx, s, before))
}

// step does what is next, and sets s.condition.
func (r *Reconciler) step(ctx context.Context, s *scope) error {
	switch request := s.restore.Spec.Request; {
	case !s.restore.DeletionTimestamp.IsZero():
		return r.abandon(ctx, s)
	case request == nil:
		return r.consider(ctx, s)
	case request.Result == "":
		return r.proceed(ctx, s)
	default:
		return r.settle(ctx, s, resultMessage(s, request.Result))
	}
}

// read reads the objects that belong to the restore.
func (r *Reconciler) read(ctx context.Context, restore *infrav1.ElementalEtcdRestore) (*scope, error) {
	s := &scope{restore: restore, facts: etcdrestore.Facts{Restore: restore}}
	cluster, err := reconcile.Get(ctx, r.Client, restore.Namespace, restore.Spec.ClusterName, &clusterv1.Cluster{})
	if err != nil {
		return nil, fmt.Errorf("getting Cluster: %w", err)
	}
	if cluster == nil {
		return s, nil
	}
	infra, err := reconcile.Get(ctx, r.Client, restore.Namespace, cluster.Spec.InfrastructureRef.Name, &infrav1.ElementalCluster{})
	if err != nil {
		return nil, fmt.Errorf("getting ElementalCluster: %w", err)
	}
	if infra == nil || !ownership.NamesInfraCluster(cluster, infra) {
		return s, nil
	}
	s.facts.Cluster, s.infra = cluster, infra
	// Without the watch filter: hosts of other managers may belong to the control plane, too.
	hosts, err := reconcile.ListHosts(ctx, r.Client, restore.Namespace, "", client.MatchingFields{index.HostByCluster: cluster.Name})
	if err != nil {
		return nil, err
	}
	s.facts.Hosts = hosts
	if host := s.facts.Host(); host != nil {
		s.host = host.DeepCopy()
	}
	return s, nil
}
