package grant

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhostgrants,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhostgrants/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// retryRefused is when a namespace that took no host is tried again.
const retryRefused = time.Minute

// Reconciler reconciles ElementalHostGrants, with one worker.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache.
	APIReader client.Reader
	// Recorder records Events on ElementalHosts.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// Namespace is the only one that the manager watches; blank for all.
	Namespace string
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must have;
	// blank for all.
	WatchFilter string
}

// scope holds what one reconcile has read and found out. It has no methods.
type scope struct {
	grant    *infrav1.ElementalHostGrant
	selector labels.Selector
	pairs    []*pair
	// refused says why the namespace takes no hosts; blank if it does.
	refused string
}

func statusOf(g *infrav1.ElementalHostGrant) *infrav1.ElementalHostGrantStatus { return &g.Status }

// Reconcile reconciles one ElementalHostGrant.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	grant := &infrav1.ElementalHostGrant{}
	if err := r.Client.Get(ctx, req.NamespacedName, grant); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(grant, r.WatchFilter) || isMoved(grant) || annotations.HasPaused(grant) {
		return ctrl.Result{}, nil
	}
	before := grant.Status.DeepCopy()
	s := &scope{grant: grant}
	if err := r.reconcile(ctx, s); err != nil {
		return reconcile.RequeueConflict(ctrl.Result{}, err)
	}
	setStatus(s, r.Clock.Now())
	result := ctrl.Result{}
	if s.refused != "" {
		result.RequeueAfter = retryRefused
	}
	_, err := reconcile.PatchStatus(ctx, r.Client, grant, statusOf, before)
	return reconcile.RequeueConflict(result, err)
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) error {
	isDeleted := !s.grant.DeletionTimestamp.IsZero()
	if !isDeleted && !controllerutil.ContainsFinalizer(s.grant, infrav1.HostGrantFinalizer) {
		if err := reconcile.PatchSpec(ctx, r.Client, s.grant, statusOf, "adding the finalizer", func(g *infrav1.ElementalHostGrant) {
			controllerutil.AddFinalizer(g, infrav1.HostGrantFinalizer)
		}); err != nil {
			return err
		}
	}
	switch {
	case s.grant.Spec.Namespace == s.grant.Namespace:
		s.refused = "The hosts are in this namespace already: delete this ElementalHostGrant"
	case r.Namespace != "" && s.grant.Spec.Namespace != r.Namespace:
		s.refused = "The manager watches namespace " + r.Namespace + " only: run one that watches both"
	default:
		if err := r.read(ctx, s); err != nil {
			return err
		}
	}
	for _, p := range s.pairs {
		if err := r.advance(ctx, s, p); err != nil {
			return err
		}
	}
	s.pairs = slices.DeleteFunc(s.pairs, func(p *pair) bool { return p.phase() == "" })
	switch {
	case !isDeleted:
		return r.take(ctx, s)
	case len(s.pairs) > 0 || !controllerutil.ContainsFinalizer(s.grant, infrav1.HostGrantFinalizer):
		return nil
	}
	return reconcile.PatchSpec(ctx, r.Client, s.grant, statusOf, "removing the finalizer", func(g *infrav1.ElementalHostGrant) {
		controllerutil.RemoveFinalizer(g, infrav1.HostGrantFinalizer)
	})
}

// read reads the hosts of the grant, and decides which of them stay granted.
func (r *Reconciler) read(ctx context.Context, s *scope) error {
	s.selector = labels.Everything()
	if selector := s.grant.Spec.Hosts.Selector; selector != nil {
		var err error
		if s.selector, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return fmt.Errorf("reading spec.hosts.selector: %w", err)
		}
	}
	hosts, err := reconcile.ListHosts(ctx, r.Client, s.grant.Namespace, r.WatchFilter)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		to := host.Spec.GrantedTo
		if to == nil || to.GrantName != s.grant.Name {
			continue
		}
		p := &pair{pool: host.DeepCopy()}
		if p.granted, err = reconcile.Get(ctx, r.Client, to.Namespace, to.Name, &infrav1.ElementalHost{}); err != nil {
			return fmt.Errorf("getting the granted host: %w", err)
		}
		s.pairs = append(s.pairs, p)
	}
	keep(s)
	return nil
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalhostgrant")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalhostgrant").
		For(&infrav1.ElementalHostGrant{}).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)).
		WithOptions(options).
		Watches(&infrav1.ElementalHost{}, handler.EnqueueRequestsFromMapFunc(r.grantsOf)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// grantsOf returns the grants of the pool that a host is in or comes from. A pool has few.
func (r *Reconciler) grantsOf(ctx context.Context, object client.Object) []ctrl.Request {
	pool := object.GetNamespace()
	if host, ok := object.(*infrav1.ElementalHost); ok && host.Spec.GrantedFrom != nil {
		pool = host.Spec.GrantedFrom.Namespace
	}
	grants := &infrav1.ElementalHostGrantList{}
	if err := r.Client.List(ctx, grants, client.InNamespace(pool), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalHostGrants")
		return nil
	}
	requests := make([]ctrl.Request, len(grants.Items))
	for i := range grants.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&grants.Items[i])
	}
	return requests
}
