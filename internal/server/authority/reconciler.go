package authority

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// +kubebuilder:rbac:groups="",namespace=system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=system,resources=secrets,resourceNames=elemental-agent-api-ca,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// waitInterval is how often hosts are counted while a step waits for them.
	waitInterval = 5 * time.Second
	// waitingEventInterval is how often an Event is recorded while a step waits.
	waitingEventInterval = 10 * time.Minute
)

// Reasons of Events on the Secret.
const (
	rotatedReason    = "CARotated"
	refusedReason    = "CARotationRefused"
	waitingReason    = "CARotationWaiting"
	restoredReason   = "CARestored"
	unreadableReason = "CAUnreadable"
	replacedReason   = "CAReplaced"
)

// Reconciler reconciles the authority's Secret. It has one worker.
type Reconciler struct {
	Authority *Authority
	// Hosts reads ElementalHosts from a cache.
	Hosts client.Reader
	// Recorder records Events on the Secret.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	// eventAt is when the last Event about a waiting step was recorded, and logged the
	// last message in the log.
	eventAt time.Time
	logged  string
}

// Reconcile updates the Authority from its Secret, and executes the requested step of a
// rotation.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	a := r.Authority
	secret := &corev1.Secret{}
	// From the API server: a step must not be executed twice, nor an existing Secret
	// restored.
	err := a.reader.Get(ctx, a.secret, secret)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.restore(ctx)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading agent API authority: %w", err)
	}
	m, err := parse(secret.Data)
	if err != nil {
		// An administrator has to repair the Secret, which triggers the next reconcile.
		ctrl.LoggerFrom(ctx).Error(err, "Agent API authority can't be read, going on with the former one", "Secret", klog.KObj(secret))
		r.event(secret, corev1.EventTypeWarning, unreadableReason, "The Secret can't be used and the former CA stays in use: "+err.Error())
		return ctrl.Result{}, nil
	}
	r.adopt(ctx, secret, m)
	return r.rotate(ctx, secret, m)
}

// restore creates a deleted Secret again with the same CA, because hosts trust no other.
// If the Authority was not used yet, it creates the Secret at its first use.
func (r *Reconciler) restore(ctx context.Context) error {
	m := r.Authority.current()
	if m == nil {
		return nil
	}
	secret := r.Authority.object(maps.Clone(m.data))
	ctrl.LoggerFrom(ctx).Info("Putting the deleted agent API authority back", "Secret", klog.KObj(secret))
	if err := r.Authority.writer.Create(ctx, secret); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil // its creation triggers the next reconcile
		}
		return fmt.Errorf("putting Secret %s back: %w", r.Authority.secret, err)
	}
	r.event(secret, corev1.EventTypeWarning, restoredReason, "The Secret was deleted and put back with the same CA")
	return nil
}

// adopt makes the Authority use the material of the Secret.
func (r *Reconciler) adopt(ctx context.Context, secret *corev1.Secret, m *material) {
	before := r.Authority.use(m)
	if before == nil || before.signer.cert.Equal(m.signer.cert) {
		return
	}
	log := ctrl.LoggerFrom(ctx).WithValues("Secret", klog.KObj(secret), "signer", m.signer.cert.Subject.CommonName)
	if len(anchors(m.signer.cert, before.roots)) > 0 {
		log.Info("Signing with another authority that hosts were told to trust")
		return
	}
	log.Info("Signing with another authority that hosts were not told to trust")
	r.event(secret, corev1.EventTypeWarning, replacedReason,
		"The CA was replaced by one that hosts were not told to trust: they can't connect unless they know it from elsewhere")
}

// rotate executes the step that the annotation requests, in one optimistically locked
// write.
func (r *Reconciler) rotate(ctx context.Context, secret *corev1.Secret, m *material) (ctrl.Result, error) {
	step, asked := secret.Annotations[RotationAnnotation]
	if !asked {
		return ctrl.Result{}, nil
	}
	after := secret.DeepCopy()
	delete(after.Annotations, RotationAnnotation)
	var message string
	var err error
	switch step {
	case StepPrepare:
		message, err = prepare(m, after.Data, r.Clock.Now())
	case StepSwitch:
		var hosts *unacknowledged
		if err = switchable(m); err == nil {
			hosts, err = r.hostsWithout(ctx, m.bundle)
		}
		if err == nil && hosts.missing > 0 {
			r.reportWaiting(ctx, secret, hosts)
			return ctrl.Result{RequeueAfter: waitInterval}, nil
		}
		if err == nil {
			message, err = switchOver(m, after.Data)
		}
	case StepForce:
		message, err = switchOver(m, after.Data)
	case StepFinish:
		message, err = finish(m, after.Data)
	default:
		err = refusal(fmt.Sprintf("it is none of %s, %s, %s, %s: %q", StepPrepare, StepSwitch, StepForce, StepFinish, step))
	}
	kind, reason := corev1.EventTypeNormal, rotatedReason
	if refused, ok := errors.AsType[refusal](err); ok {
		after.Data = secret.Data
		kind, reason, message = corev1.EventTypeWarning, refusedReason, "The step was refused: "+string(refused)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("rotating the authority: %w", err)
	}
	return ctrl.Result{}, r.write(ctx, after, step, func() { r.event(after, kind, reason, message) })
}

// write writes the result of a step, then makes the Authority use it and calls
// recordEvent.
func (r *Reconciler) write(ctx context.Context, after *corev1.Secret, step string, recordEvent func()) error {
	m, err := parse(after.Data)
	if err != nil {
		return fmt.Errorf("checking the rotated authority: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Writing agent API authority", "Secret", klog.KObj(after), "step", step,
		"roots", len(m.roots), "signer", m.signer.cert.Subject.CommonName, "rotating", m.next != nil)
	if err := r.Authority.writer.Update(ctx, after); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // the other write triggers the next reconcile
		}
		return fmt.Errorf("writing Secret %s: %w", r.Authority.secret, err)
	}
	r.adopt(ctx, after, m)
	r.logged, r.eventAt = "", time.Time{}
	recordEvent()
	return nil
}

// reportWaiting reports which hosts a step waits for: in the log when they change, and as
// an Event once in waitingEventInterval.
func (r *Reconciler) reportWaiting(ctx context.Context, secret *corev1.Secret, hosts *unacknowledged) {
	message := hosts.message()
	if message != r.logged {
		r.logged = message
		ctrl.LoggerFrom(ctx).Info("Rotation waits for hosts", "Secret", klog.KObj(secret), "reason", message)
	}
	if now := r.Clock.Now(); r.eventAt.IsZero() || now.Sub(r.eventAt) >= waitingEventInterval {
		r.eventAt = now
		r.event(secret, corev1.EventTypeWarning, waitingReason, message)
	}
}

func (r *Reconciler) event(secret *corev1.Secret, kind, reason, message string) {
	r.Recorder.Eventf(secret, nil, kind, reason, "RotateCA", "%s", message)
}

// SetupWithManager registers the reconciler, with a watch of its Secret only.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	namespace := r.Authority.secret.Namespace
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: dropContent,
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", SecretName)}},
		}},
	})
	if err != nil {
		return fmt.Errorf("making a cache for Secret %s: %w", r.Authority.secret, err)
	}
	if err := mgr.Add(secrets); err != nil {
		return fmt.Errorf("adding the cache for Secret %s: %w", r.Authority.secret, err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("elemental-agent-api-ca").
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{})).
		WatchesRawSource(source.Func(r.enqueueOnce)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding controller: %w", err)
	}
	return nil
}

// enqueueOnce enqueues the Secret at the start: no event reports a deletion between the
// first use and the start of the watch.
func (r *Reconciler) enqueueOnce(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(reconcile.Request{NamespacedName: r.Authority.secret})
	return nil
}

// dropContent removes the keys from cached Secrets. The cache is used for events only.
func dropContent(object any) (any, error) {
	if secret, ok := object.(*corev1.Secret); ok {
		secret.Data, secret.ManagedFields = nil, nil
	}
	return object, nil
}
