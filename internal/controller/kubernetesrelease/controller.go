package kubernetesrelease

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalkubernetesreleases,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalkubernetesreleases/status,verbs=patch

// Bundles are the bundles that hosts can fetch from the manager.
type Bundles interface {
	// Has reports whether a bundle has the SHA-256, which is in lower-case hex.
	Has(sha256 string) bool
	// Scanned reports whether all bundles have been hashed. Until then Has may report false
	// for a bundle that exists.
	Scanned() bool
	// Subscribe makes each change of the bundles call f, until stop is called.
	Subscribe(f func()) (stop func())
}

// Reconciler reconciles ElementalKubernetesReleases. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Bundles are those that hosts can fetch from the manager.
	Bundles Bundles
	// Clock is the time source.
	Clock clock.PassiveClock
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that objects must
	// have; blank for all.
	WatchFilter string
}

func statusOf(r *infrav1.ElementalKubernetesRelease) *infrav1.ElementalKubernetesReleaseStatus {
	return &r.Status
}

// Reconcile reconciles one ElementalKubernetesRelease.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	release := &infrav1.ElementalKubernetesRelease{}
	if err := r.Client.Get(ctx, req.NamespacedName, release); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(release, r.WatchFilter) || !release.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := release.Status.DeepCopy()
	if ready, known := bundlesReady(release, r.Bundles); known {
		reconcile.SetConditions(&release.Status.Conditions, release.Generation, r.Clock.Now(), ready)
	}
	_, err := reconcile.PatchStatus(ctx, r.Client, release, statusOf, before)
	return reconcile.RequeueConflict(ctrl.Result{}, err)
}

// bundlesReady returns the condition BundlesReady. known is false if the former one stays: a
// manager that has just started does not know all of its files.
func bundlesReady(release *infrav1.ElementalKubernetesRelease, bundles Bundles) (_ metav1.Condition, known bool) {
	// Asked first: a file that is found in between is not missing.
	scanned := bundles.Scanned()
	var missing []string
	for _, b := range release.Spec.Bundles {
		if isServed := len(b.Sources) == 0 || slices.Contains(b.Sources, infrav1.SourceManager); isServed && !bundles.Has(b.SHA256) {
			missing = append(missing, b.Architecture+" ("+b.SHA256+")")
		}
	}
	c := metav1.Condition{Type: infrav1.BundlesReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.BundlesServedReason}
	switch {
	case len(missing) == 0:
	case scanned:
		c.Status, c.Reason = metav1.ConditionFalse, infrav1.BundlesMissingReason
		c.Message = "No file in the manager's --bundles has the SHA-256 that is pinned for " + strings.Join(missing, ", ")
	case meta.FindStatusCondition(release.Status.Conditions, c.Type) != nil:
		return c, false
	default:
		c.Status, c.Reason = metav1.ConditionUnknown, infrav1.BundlesHashingReason
		c.Message = "The manager is still reading the files in its --bundles"
	}
	return c, true
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalkubernetesrelease")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalkubernetesrelease").
		For(&infrav1.ElementalKubernetesRelease{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter))).
		WithOptions(options).
		WatchesRawSource(source.Func(r.onChange)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// onChange wakes all releases when the bundles change.
func (r *Reconciler) onChange(ctx context.Context, queue reconcile.Queue) error {
	stop := r.Bundles.Subscribe(func() {
		var all infrav1.ElementalKubernetesReleaseList
		if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			// Reading the cache fails only when the manager stops.
			ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalKubernetesReleases")
		}
		for i := range all.Items {
			queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	})
	context.AfterFunc(ctx, stop)
	return nil
}
