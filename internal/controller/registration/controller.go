package registration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/reconcile"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch;create;patch

// Authority is the certificate authority of the agent API.
type Authority interface {
	// Bundle returns the trust bundle of hosts, in PEM.
	Bundle(ctx context.Context) (string, error)
	// Subscribe makes each change of the bundle call f, until stop is called.
	Subscribe(f func()) (stop func())
}

// Agents are the agent binaries that hosts can download.
type Agents interface {
	// Has reports whether a binary has the SHA-256, which is in lower-case hex.
	Has(sha256 string) bool
	// Subscribe makes each change of the binaries call f, until stop is called.
	Subscribe(f func()) (stop func())
}

// Reconciler reconciles ElementalRegistrations. Several workers may run at once.
type Reconciler struct {
	// Client writes, and reads from a cache that contains only Secrets with the label
	// infrav1.RegistrationLabel.
	Client client.Client
	// Authority provides the trust bundle of hosts.
	Authority Authority
	// Agents are the agent binaries that hosts can download.
	Agents Agents
	// URL is the default server URL for hosts; a registration may set another. It may be
	// blank.
	URL string
	// Clock is the time source.
	Clock clock.PassiveClock
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that
	// objects must have; blank for all.
	WatchFilter string
}

// scope holds what one reconcile has read and found out. Its methods neither read nor
// write objects of the API server.
type scope struct {
	registration *infrav1.ElementalRegistration
	paused       bool
	// url and trustBundle are for hosts; url is blank while it is unknown.
	url, trustBundle string
	// tokens of the registration; the newest is the first.
	tokens []token
	// missing are the pinned agent binaries that hosts can't download.
	missing []infrav1.AgentBinary
	// followers is nil without a successor.
	followers *followers
}

// token is a token Secret with its content.
type token struct {
	secret *corev1.Secret
	read   enrolment.Token
	state  enrolment.State
}

func statusOf(r *infrav1.ElementalRegistration) *infrav1.ElementalRegistrationStatus {
	return &r.Status
}

// Reconcile reconciles one ElementalRegistration.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	registration := &infrav1.ElementalRegistration{}
	if err := r.Client.Get(ctx, req.NamespacedName, registration); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !reconcile.IsWatched(registration, r.WatchFilter) {
		// Changes of token Secrets wake the registrations of other managers, too.
		return ctrl.Result{}, nil
	}
	if !registration.DeletionTimestamp.IsZero() {
		// The garbage collector deletes its Secrets. Its tokens are invalid already.
		return ctrl.Result{}, nil
	}
	s := &scope{registration: registration, paused: annotations.HasPaused(registration)}
	before := registration.Status.DeepCopy()
	var result ctrl.Result
	if !s.paused {
		for _, step := range []func(context.Context, *scope) error{
			r.readServer, r.findMissingAgents, r.readTokens, r.ensureToken, r.refreshSecrets, r.countFollowers,
		} {
			if err := step(ctx, s); err != nil {
				return ctrl.Result{}, ignoreConflict(err)
			}
		}
		result.RequeueAfter = r.untilExpiry(s)
		if f := s.followers; f != nil && !f.isSame && (result.RequeueAfter == 0 || result.RequeueAfter > countPeriod) {
			result.RequeueAfter = countPeriod
		}
	}
	if err := r.patchStatus(ctx, s, before); err != nil {
		return ctrl.Result{}, ignoreConflict(err)
	}
	return result, nil
}

// readServer sets the server URL and the trust bundle.
func (r *Reconciler) readServer(ctx context.Context, s *scope) error {
	bundle, err := r.Authority.Bundle(ctx)
	if err != nil {
		return fmt.Errorf("reading the trust bundle: %w", err)
	}
	s.url, s.trustBundle = enrolment.ServerURL(s.registration, r.URL), bundle
	return nil
}

// findMissingAgents finds the pinned agent binaries that hosts can't download.
func (r *Reconciler) findMissingAgents(_ context.Context, s *scope) error {
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

// ignoreConflict ignores conflicts: the other client's write triggers another reconcile.
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
		WatchesRawSource(r.onChange(r.Authority.Subscribe)).
		WatchesRawSource(r.onChange(r.Agents.Subscribe)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// registrationOf returns the registration of a token Secret.
func registrationOf(_ context.Context, o client.Object) []ctrl.Request {
	name := o.GetLabels()[infrav1.RegistrationLabel]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// onChange returns a source that wakes all registrations when subscribe's function is
// called.
func (r *Reconciler) onChange(subscribe func(func()) func()) source.Source {
	return source.Func(func(ctx context.Context, queue reconcile.Queue) error {
		stop := subscribe(func() {
			var all infrav1.ElementalRegistrationList
			if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
				// Reading the cache fails only when the manager stops.
				ctrl.LoggerFrom(ctx).Error(err, "Listing ElementalRegistrations")
			}
			for i := range all.Items {
				queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
			}
		})
		context.AfterFunc(ctx, stop)
		return nil
	})
}
