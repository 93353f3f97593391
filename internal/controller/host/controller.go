// Package host reconciles ElementalHosts: it keeps their conditions in line with
// their spec and frees hosts whose release is complete.
//
// What agents report, and the conditions that follow from it, is written by the
// agent API in one request; both derive conditions with package hoststatus, so
// this controller finds nothing to write then.
package host

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/claim"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// enrolmentTime is far more than an enrolment takes.
const enrolmentTime = 10 * time.Second

// Reconciler reconciles ElementalHosts. Several workers may run at once.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads past the cache.
	APIReader client.Reader
	// Recorder records Events on ElementalHosts.
	Recorder events.EventRecorder
	// Clock is the time source.
	Clock clock.PassiveClock
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string
}

// Reconcile brings one ElementalHost a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	host := &infrav1.ElementalHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilter != "" && !labels.HasWatchLabel(host, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	// A host that just enrolled gets its first status from the agent API, with
	// all conditions. Only if that was cut short is it for us to write one.
	if age := r.Clock.Now().Sub(host.CreationTimestamp.Time); len(host.Status.Conditions) == 0 && age < enrolmentTime {
		return ctrl.Result{RequeueAfter: enrolmentTime}, nil
	}
	err := r.reconcile(ctx, host)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The write that won brings the host back here.
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: nextEnd(host, r.Clock.Now())}, nil
}

func (r *Reconciler) reconcile(ctx context.Context, host *infrav1.ElementalHost) error {
	if !annotations.HasPaused(host) && host.DeletionTimestamp.IsZero() {
		for _, step := range []func(context.Context, *infrav1.ElementalHost) error{r.keepTime, r.releaseFenced, r.completeRelease} {
			if err := step(ctx, host); err != nil {
				return err
			}
		}
	}
	before := host.DeepCopy()
	now := metav1.NewTime(r.Clock.Now())
	if err := r.setMachineExists(ctx, host, now); err != nil {
		return err
	}
	hoststatus.Update(host, now)
	if equality.Semantic.DeepEqual(before.Status, host.Status) {
		return nil
	}
	after := host.DeepCopy()
	if err := r.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	for _, e := range hoststatus.Events(before, host) {
		r.Recorder.Eventf(host, nil, e.Type, e.Reason, "Reconcile", "%s", e.Message)
	}
	return nil
}

// setMachineExists tells of a host that is bound to a Machine that does not
// exist: one whose finalizer somebody stripped, or one that a restore or move
// has not brought back yet. That is never a reason to reset the host by itself.
func (r *Reconciler) setMachineExists(ctx context.Context, host *infrav1.ElementalHost, now metav1.Time) error {
	is := host.Spec.Claim
	if is == nil || is.Phase != infrav1.ClaimBound {
		meta.RemoveStatusCondition(&host.Status.Conditions, infrav1.MachineExistsCondition)
		return nil
	}
	found := metav1.Condition{
		Type: infrav1.MachineExistsCondition, Status: metav1.ConditionTrue, Reason: infrav1.MachineFoundReason,
		ObservedGeneration: host.Generation, LastTransitionTime: now,
	}
	exists, err := r.machineExists(ctx, host)
	if err != nil {
		return err
	}
	if !exists {
		found.Status, found.Reason = metav1.ConditionFalse, infrav1.MachineNotFoundReason
		found.Message = fmt.Sprintf("Machine %s does not exist. If it is not about to be restored or moved here, "+
			"set spec.claim.phase to Releasing to have the host reset and offered again", is.MachineName)
	}
	if old := meta.FindStatusCondition(host.Status.Conditions, found.Type); old == nil || old.Status != found.Status || old.Message != found.Message {
		meta.SetStatusCondition(&host.Status.Conditions, found)
	}
	return nil
}

// machineExists reports whether there is a Machine of the name in the host's
// claim. An absence is looked up past the cache.
func (r *Reconciler) machineExists(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	key := client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.Claim.MachineName}
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		err := reader.Get(ctx, key, &clusterv1.Machine{})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("getting Machine %s: %w", key.Name, err)
		}
		if err == nil {
			return true, nil
		}
	}
	return false, nil
}

// completeRelease frees a host that is clean and whose Machine is gone. Core
// deletes the Machine's Node after the infrastructure; a host that was free
// before would join under a name whose Node still exists.
//
// A silent host whose Machine is gone stays Releasing: that is the durable
// record that it must be reset before anything else. It does not hold up
// `clusterctl move`, which takes the record along.
func (r *Reconciler) completeRelease(ctx context.Context, host *infrav1.ElementalHost) error {
	is := host.Spec.Claim
	if is == nil || is.Phase != infrav1.ClaimReleasing {
		return nil
	}
	gone, err := r.machineGone(ctx, host)
	if err != nil || !gone {
		return err
	}
	if hoststatus.IsReset(host) {
		ctrl.LoggerFrom(ctx).Info("Freeing host", "machineName", is.MachineName, "clusterName", is.ClusterName)
		return claim.Free(ctx, r.Client, host, is.ID)
	}
	if _, blocked := host.Annotations[clusterctlv1.BlockMoveAnnotation]; !blocked {
		return nil
	}
	before := host.DeepCopy()
	delete(host.Annotations, clusterctlv1.BlockMoveAnnotation)
	if err := r.Client.Patch(ctx, host, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("removing annotation %s: %w", clusterctlv1.BlockMoveAnnotation, err)
	}
	return nil
}

// machineGone reports whether the Machine that the host was released by is gone.
// A new one of the same name is another: it is neither being deleted nor on this
// host. The cache is asked first, which is right nearly always, and the API
// server before anything is concluded from an absence.
func (r *Reconciler) machineGone(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
	key := client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.Claim.MachineName}
	for _, reader := range []client.Reader{r.Client, r.APIReader} {
		machine := &clusterv1.Machine{}
		err := reader.Get(ctx, key, machine)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("getting Machine %s: %w", key.Name, err)
		}
		if err == nil && (!machine.DeletionTimestamp.IsZero() || machine.Spec.ProviderID == plan.ProviderID(host)) {
			return false, nil
		}
	}
	return true, nil
}

// SetupWithManager registers the reconciler and its watches. The indexes of
// package index must have been registered.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalhost")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalhost").
		For(&infrav1.ElementalHost{}).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter)).
		WithOptions(options).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.hostsOfMachine), builder.WithPredicates(comingsAndGoings())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// comingsAndGoings passes creations and deletions.
func comingsAndGoings() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func (r *Reconciler) hostsOfMachine(ctx context.Context, machine client.Object) []ctrl.Request {
	hosts := &infrav1.ElementalHostList{}
	err := r.Client.List(ctx, hosts, client.InNamespace(machine.GetNamespace()),
		client.MatchingFields{index.HostByMachine: machine.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing hosts of Machine")
		return nil
	}
	requests := make([]ctrl.Request, len(hosts.Items))
	for i := range hosts.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&hosts.Items[i])
	}
	return requests
}
