package registration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch;create;patch

// Authority knows the roots that hosts are to trust.
type Authority interface {
	Bundle(ctx context.Context) (string, error)
	// Subscribe has f called after a change, until stop is called.
	Subscribe(f func()) (stop func())
}

// Agents knows the agents' binaries that hosts can fetch.
type Agents interface {
	// Has tells whether there is one with that SHA-256, in lower-case hex.
	Has(sha256 string) bool
	// Subscribe has f called after a change, until stop is called.
	Subscribe(f func()) (stop func())
}

// Reconciler reconciles ElementalRegistrations. Several workers may run at once.
type Reconciler struct {
	// Client reads from a cache that holds Secrets with the label
	// infrav1.RegistrationLabel, and writes.
	Client client.Client
	// Authority knows the roots that hosts are to trust.
	Authority Authority
	// Agents knows the agents' binaries that hosts can fetch.
	Agents Agents
	// URL is where hosts find the agent API unless the registration says
	// otherwise; may be blank.
	URL string
	// Clock is the time source.
	Clock clock.PassiveClock
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string
}

// scope is what one reconcile has read and found out. It has no methods that
// read or write.
type scope struct {
	registration *infrav1.ElementalRegistration
	paused       bool
	// url and bundle are what hosts are told; url is blank while it is unknown.
	url, bundle string
	// tokens of the registration, the newest first.
	tokens []token
	// missing are the pinned agents that no host can fetch.
	missing []infrav1.AgentBinary
}

// token is a token Secret and what it says.
type token struct {
	secret *corev1.Secret
	read   enrolment.Token
	state  enrolment.State
}

// Reconcile brings one ElementalRegistration up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	registration := &infrav1.ElementalRegistration{}
	if err := r.Client.Get(ctx, req.NamespacedName, registration); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.WatchFilter != "" && registration.Labels[clusterv1.WatchLabel] != r.WatchFilter {
		return ctrl.Result{}, nil // another manager's, whose token Secret changed
	}
	if !registration.DeletionTimestamp.IsZero() {
		// Its Secrets are collected, and no token is good without a registration.
		return ctrl.Result{}, nil
	}
	s := &scope{registration: registration, paused: annotations.HasPaused(registration)}
	before := registration.Status.DeepCopy()
	var result ctrl.Result
	if !s.paused {
		for _, step := range []func(context.Context, *scope) error{
			r.findEndpoint, r.findAgents, r.readTokens, r.ensureToken, r.refreshSecrets,
		} {
			if err := step(ctx, s); err != nil {
				return ctrl.Result{}, ignoreConflict(err)
			}
		}
		result.RequeueAfter = r.untilExpiry(s)
	}
	if err := r.patchStatus(ctx, s, before); err != nil {
		return ctrl.Result{}, ignoreConflict(err)
	}
	return result, nil
}

// findEndpoint finds out what hosts are told.
func (r *Reconciler) findEndpoint(ctx context.Context, s *scope) error {
	bundle, err := r.Authority.Bundle(ctx)
	if err != nil {
		return fmt.Errorf("finding trusted roots: %w", err)
	}
	s.url, s.bundle = enrolment.URL(s.registration, r.URL), bundle
	return nil
}

// findAgents finds out which of the pinned agents are not there.
func (r *Reconciler) findAgents(_ context.Context, s *scope) error {
	if s.registration.Spec.Agent == nil {
		return nil
	}
	for _, binary := range s.registration.Spec.Agent.Binaries {
		if !r.Agents.Has(binary.SHA256) {
			s.missing = append(s.missing, binary)
		}
	}
	return nil
}

// ignoreConflict drops conflicts: the write that won brings the object back.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "elementalregistration")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("elementalregistration").
		For(&infrav1.ElementalRegistration{}, builder.WithPredicates(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilter))).
		WithOptions(options).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(registrationOf)).
		WatchesRawSource(r.whenever(r.Authority.Subscribe)).
		WatchesRawSource(r.whenever(r.Agents.Subscribe)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// registrationOf is the registration that a token Secret belongs to.
func registrationOf(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[infrav1.RegistrationLabel]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// whenever has all registrations looked at after each change of something that
// they all depend on.
func (r *Reconciler) whenever(subscribe func(func()) func()) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		stop := subscribe(func() {
			var all infrav1.ElementalRegistrationList
			if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
				// Only when the manager ends: it is a cache.
				ctrl.LoggerFrom(ctx).Error(err, "Registrations could not be listed")
			}
			for i := range all.Items {
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
			}
		})
		context.AfterFunc(ctx, stop)
		return nil
	})
}
