package template

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Interval is the least time between two looks at one template, and so between
// two writes.
const Interval = 10 * time.Second

// Reconciler reconciles ElementalMachineTemplates. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Clock is the time source.
	Clock clock.PassiveClock
	// Selectors compiles the templates' selectors; nil: each time anew.
	Selectors *selector.Compiler
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string

	pace pace
}

// Reconcile looks at the hosts that match one template, unless it has just done so.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template := &infrav1.ElementalMachineTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		if apierrors.IsNotFound(err) {
			r.pace.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilter != "" && !labels.HasWatchLabel(template, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	if !template.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if paused, err := r.paused(ctx, template); paused || err != nil {
		return ctrl.Result{}, err
	}
	if wait := r.pace.wait(r.Clock.Now(), req.NamespacedName); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	hosts, err := r.hosts(ctx, template.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := template.DeepCopy()
	template.Status = statusFor(r.request(ctx, template), hosts)
	if !equality.Semantic.DeepEqual(before.Status, template.Status) {
		ctrl.LoggerFrom(ctx).V(1).Info("Updating capacity")
		if err := r.Client.Status().Patch(ctx, template, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, fmt.Errorf("patching status: %w", client.IgnoreNotFound(err))
		}
	}
	r.pace.looked(r.Clock.Now(), req.NamespacedName)
	return ctrl.Result{}, nil
}

// paused follows Cluster API: a template belongs to the Cluster that uses it. A
// Cluster that is referred to but missing counts as paused: on the target of a
// move objects arrive one by one.
func (r *Reconciler) paused(ctx context.Context, template *infrav1.ElementalMachineTemplate) (bool, error) {
	cluster, err := util.GetOwnerCluster(ctx, r.Client, template.ObjectMeta)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting Cluster: %w", err)
	}
	if cluster == nil {
		return annotations.HasPaused(template), nil
	}
	return annotations.IsPaused(cluster, template), nil
}

func (r *Reconciler) request(ctx context.Context, template *infrav1.ElementalMachineTemplate) placement.Request {
	request := placement.Request{}
	if spec := template.Spec.Template.Spec; spec != nil {
		request.Selector = r.Selectors.Compile(ctx, spec.HostSelector)
	}
	return request
}

// hosts returns the namespace's hosts. They are the cache's own and must not be
// changed.
func (r *Reconciler) hosts(ctx context.Context, namespace string) ([]infrav1.ElementalHost, error) {
	options := []client.ListOption{client.InNamespace(namespace), client.UnsafeDisableDeepCopy}
	if r.WatchFilter != "" {
		// Of other hosts this manager would hear nothing.
		options = append(options, client.MatchingLabels{clusterv1.WatchLabel: r.WatchFilter})
	}
	list := &infrav1.ElementalHostList{}
	if err := r.Client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing hosts: %w", err)
	}
	return list.Items, nil
}
