package template

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Interval is the minimum time between two updates of one template's status.
const Interval = 10 * time.Second

// Reconciler reconciles ElementalMachineTemplates. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Clock is the time source.
	Clock clock.PassiveClock
	// Selectors compiles the templates' selectors; nil compiles them without a cache.
	Selectors *selector.Compiler
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	limiter limiter
}

// Reconcile updates the status of one ElementalMachineTemplate, unless it was updated
// less than Interval ago.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template := &infrav1.ElementalMachineTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		if apierrors.IsNotFound(err) {
			r.limiter.remove(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(template, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	if !template.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if paused, err := r.paused(ctx, template); paused || err != nil {
		return ctrl.Result{}, err
	}
	if wait := r.limiter.wait(r.Clock.Now(), req.NamespacedName); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	hosts, err := reconcile.ListHosts(ctx, r.Client, template.Namespace, r.WatchFilter)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := template.DeepCopy()
	template.Status = statusFor(r.constraints(ctx, template), hosts)
	if !equality.Semantic.DeepEqual(before.Status, template.Status) {
		ctrl.LoggerFrom(ctx).V(1).Info("Updating capacity")
		// No optimistic lock: no other client writes this status.
		if err := r.Client.Status().Patch(ctx, template, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("writing status: %w", err)
		}
	}
	r.limiter.updated(r.Clock.Now(), req.NamespacedName)
	return ctrl.Result{}, nil
}

// paused reports whether the template or the Cluster that owns it is paused.
func (r *Reconciler) paused(ctx context.Context, template *infrav1.ElementalMachineTemplate) (bool, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, template.ObjectMeta)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting Cluster: %w", err)
	}
	return reconcile.IsPaused(cluster, template, apierrors.IsNotFound(err)), nil
}

// constraints returns the constraints on the hosts of machines made from the template.
func (r *Reconciler) constraints(ctx context.Context, template *infrav1.ElementalMachineTemplate) placement.Constraints {
	constraints := placement.Constraints{}
	if spec := template.Spec.Template.Spec; spec != nil {
		constraints.Selector, constraints.OSImage = r.Selectors.Compile(ctx, spec.HostSelector), spec.OSImage != ""
	}
	return constraints
}
