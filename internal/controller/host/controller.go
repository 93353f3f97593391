// Package host reconciles ElementalHosts: it updates their conditions after a change of
// spec, ends maintenance, quarantine and requests for logs, removes expired logs, and frees hosts
// whose release is complete.
//
// The agent API writes what agents report, together with the conditions. Both derive
// conditions with package hoststatus, so this controller has nothing to write after a
// report.
package host

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/pause"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// enrolmentTime is much longer than an enrolment takes.
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

func statusOf(h *infrav1.ElementalHost) *infrav1.ElementalHostStatus { return &h.Status }

// Reconcile reconciles one ElementalHost.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	host := &infrav1.ElementalHost{}
	if err := r.Client.Get(ctx, req.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(host, r.WatchFilter) {
		return ctrl.Result{}, nil
	}
	// The agent API writes the first status of a host that enrols, with all conditions.
	// This controller writes it only if that write failed.
	if age := r.Clock.Now().Sub(host.CreationTimestamp.Time); len(host.Status.Conditions) == 0 && age < enrolmentTime {
		return ctrl.Result{RequeueAfter: enrolmentTime}, nil
	}
	err := r.reconcile(ctx, host)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The other client's write triggers another reconcile.
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: untilNextExpiry(host, r.Clock.Now())}, nil
}

func (r *Reconciler) reconcile(ctx context.Context, host *infrav1.ElementalHost) error {
	if !host.IsGone() {
		steps, err := r.steps(ctx, host)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if err := step(ctx, host); err != nil {
				return err
			}
		}
	}
	before := host.DeepCopy()
	now := metav1.NewTime(r.Clock.Now())
	if err := r.removeExpiredLog(ctx, host); err != nil {
		return err
	}
	if err := r.setMachineExists(ctx, host, now); err != nil {
		return err
	}
	if err := r.setKeyAccepted(ctx, host, now); err != nil {
		return err
	}
	hoststatus.Update(host, now)
	written, err := reconcile.PatchStatus(ctx, r.Client, host, statusOf, &before.Status)
	if err != nil || !written {
		return err
	}
	for _, e := range hoststatus.Events(before, host) {
		r.Recorder.Eventf(host, nil, e.Type, e.Reason, "Reconcile", "%s", e.Message)
	}
	return nil
}

// steps returns what is to be done with the host. While its cluster is paused, its claim
// stays as it is.
func (r *Reconciler) steps(ctx context.Context, host *infrav1.ElementalHost) ([]func(context.Context, *infrav1.ElementalHost) error, error) {
	paused, err := pause.Host(ctx, r.Client, host)
	switch {
	case err != nil:
		return nil, err
	case !paused:
		return []func(context.Context, *infrav1.ElementalHost) error{r.updateExpiring, r.releaseFenced, r.completeRelease, r.relabel}, nil
	case plan.Paused(host):
		return []func(context.Context, *infrav1.ElementalHost) error{r.unblockPausedMove}, nil
	default:
		return []func(context.Context, *infrav1.ElementalHost) error{r.updateExpiring, r.unblockPausedMove}, nil
	}
}

// setMachineExists sets the condition MachineExists of a bound host. The Machine is
// missing if a user removed its finalizer, or if a restore or move has not created it
// yet. A missing Machine alone is never a reason to reset the host.
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

// machineExists reports whether the Machine in the host's claim exists. If the cache does
// not contain it, the API server decides.
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

// completeRelease frees a host that is clean and whose Machine is deleted. Cluster API
// deletes the Node after the ElementalMachine. If the host were freed earlier, it could
// join a cluster while a Node of its name still exists.
//
// A host that does not answer stays Releasing after its Machine is deleted. This is the
// record that the host must be reset before anything else. Then `clusterctl move` need
// not wait for the reset, because the record moves along.
func (r *Reconciler) completeRelease(ctx context.Context, host *infrav1.ElementalHost) error {
	is := host.Spec.Claim
	if is == nil || is.Phase != infrav1.ClaimReleasing {
		return nil
	}
	deleted, err := r.machineDeleted(ctx, host)
	switch {
	case err != nil:
		return err
	case !deleted:
		return r.setBlockMove(ctx, host, true)
	case hoststatus.IsReset(host):
		ctrl.LoggerFrom(ctx).Info("Freeing host", "machineName", is.MachineName, "clusterName", is.ClusterName)
		return claim.Free(ctx, r.Client, host, is.ID)
	default:
		return r.setBlockMove(ctx, host, false)
	}
}

// relabel makes the label of the cluster agree with the claim.
func (r *Reconciler) relabel(ctx context.Context, host *infrav1.ElementalHost) error {
	return claim.Relabel(ctx, r.Client, host)
}

// machineDeleted reports whether the Machine that released the host is deleted. A new
// Machine of the same name is neither being deleted nor has this host's providerID. If
// the cache does not contain the Machine, the API server decides.
func (r *Reconciler) machineDeleted(ctx context.Context, host *infrav1.ElementalHost) (bool, error) {
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
		Watches(&infrav1.ElementalHost{}, handler.EnqueueRequestsFromMapFunc(r.hostsOfKey), builder.WithPredicates(holderChanged())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.hostsOfMachine), builder.WithPredicates(createdOrDeleted())).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.hostsOfCluster), builder.WithPredicates(pausedOrResumed())).
		Watches(&infrav1.ElementalMachine{}, handler.EnqueueRequestsFromMapFunc(hostOfElementalMachine), builder.WithPredicates(pausedOrResumed())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// createdOrDeleted selects create and delete events.
func createdOrDeleted() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func (r *Reconciler) hostsOfMachine(ctx context.Context, machine client.Object) []ctrl.Request {
	return r.hostsBy(ctx, machine, index.HostByMachine)
}

func (r *Reconciler) hostsOfCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.hostsBy(ctx, cluster, index.HostByCluster)
}

// hostsBy returns requests for the hosts that the index finds for the object's name.
func (r *Reconciler) hostsBy(ctx context.Context, object client.Object, indexName string) []ctrl.Request {
	hosts := &infrav1.ElementalHostList{}
	err := r.Client.List(ctx, hosts, client.InNamespace(object.GetNamespace()),
		client.MatchingFields{indexName: object.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing hosts", "index", indexName)
		return nil
	}
	requests := make([]ctrl.Request, len(hosts.Items))
	for i := range hosts.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&hosts.Items[i])
	}
	return requests
}
