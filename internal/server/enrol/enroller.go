package enrol

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/ratelimit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// enrolTimeout bounds one enrolment.
const enrolTimeout = 30 * time.Second

// Authorizer decides whether a known key may call.
type Authorizer interface {
	Authorize(ctx context.Context, host *infrav1.ElementalHost, role hoststore.KeyRole, fingerprint string, commit bool) (*infrav1.ElementalHost, error)
}

// StatusRecorder writes the status of a host that has enrolled.
type StatusRecorder interface {
	RecordEnrolment(ctx context.Context, key types.NamespacedName, fingerprint string, request *protocol.EnrolRequest) (*infrav1.ElementalHost, error)
}

// Sessions tracks connected hosts.
type Sessions interface {
	// Expect begins the grace period within which the host has to poll.
	Expect(host types.NamespacedName)
}

// Options of an Enroller.
type Options struct {
	// Client reads from a cache that has the indexes of package index, and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	Hosts     *hoststore.Store
	Keys      *KeyHistory
	Trust     Authorizer
	Status    StatusRecorder
	Sessions  Sessions
	Audit     *audit.Log
	// Recorder records Events on ElementalRegistrations.
	Recorder events.EventRecorder
	Metrics  prometheus.Registerer
	Clock    clock.Clock
	Timers   *timer.Queue
	// MaxConcurrent bounds concurrent enrolments.
	MaxConcurrent int
	// Draining is closed when the server stops.
	Draining <-chan struct{}
}

// Enroller enrols hosts. It is safe for concurrent use.
type Enroller struct {
	client     client.Client
	hosts      *hoststore.Store
	history    *KeyHistory
	trust      Authorizer
	status     StatusRecorder
	sessions   Sessions
	audit      *audit.Log
	recorder   events.EventRecorder
	clock      clock.Clock
	usage      *tokenUsage
	limiter    *limiter
	strangers  *ratelimit.Shared
	keys       keyLocks
	creates    *pendingCreates
	pending    *pendingHosts
	enrolments *prometheus.CounterVec
}

// New returns an Enroller whose metric is registered.
func New(o Options) (*Enroller, error) {
	e := &Enroller{
		client: o.Client, hosts: o.Hosts, history: o.Keys, trust: o.Trust, status: o.Status, sessions: o.Sessions, audit: o.Audit, recorder: o.Recorder, clock: o.Clock,
		limiter:   newLimiter(o.Clock, o.MaxConcurrent, o.Draining),
		strangers: ratelimit.NewShared(o.Clock, strangersPerSecond, strangersBurst),
		creates:   &pendingCreates{clock: o.Clock, timers: o.Timers, hosts: map[string]*infrav1.ElementalHost{}},
		pending:   &pendingHosts{hosts: o.Hosts, creating: map[pendingKey]int{}},
		enrolments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "elemental", Subsystem: "agent_api", Name: "enrolments_total",
			Help: "Enrolments by result: accepted, known (repeated), refused, failed, deferred (too many strangers).",
		}, []string{"result"}),
	}
	e.usage = newTokenUsage(o.Client, o.APIReader, o.Clock, e.recordForgotten)
	if err := o.Metrics.Register(e.enrolments); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return e, nil
}

// Wait returns when no write is in progress. It is called after the last HTTP request.
func (e *Enroller) Wait() { e.usage.wait() }

// Caller is who enrols.
type Caller struct {
	// Fingerprint is that of the key of the TLS connection.
	Fingerprint string
	// Token is empty if the HTTP request has none.
	Token string
	// Request is what Enrol needs; Pace does not.
	Request *protocol.EnrolRequest
	// Source is where the HTTP request comes from. Sources share concurrent enrolments.
	Source netip.Prefix
}

// home is the host that the caller was last enrolled as, by its own account.
func (c Caller) home() types.NamespacedName {
	if c.Request.Previous == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: c.Request.Previous.Namespace, Name: c.Request.Previous.Name}
}

// Enrol returns the caller's host and creates it if needed. It waits while too many hosts
// enrol. When the context ends during the enrolment itself, the enrolment continues, because
// the use of the token would be wasted otherwise.
func (e *Enroller) Enrol(ctx context.Context, caller Caller) (*infrav1.ElementalHost, error) {
	// Before the limiter, so that one key takes only one of its slots.
	unlock, err := e.keys.lock(ctx, caller.Fingerprint)
	if err != nil {
		return nil, err
	}
	defer unlock()
	release, err := e.limiter.acquire(ctx, caller.Source)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), enrolTimeout)
	defer cancel()
	host, known, err := e.findOrAdmit(ctx, caller)
	if err == nil && (!known || host.Status.Connection == nil || !hoststore.HasProved(host, caller.Fingerprint)) {
		host, err = e.status.RecordEnrolment(ctx, client.ObjectKeyFromObject(host), caller.Fingerprint, caller.Request)
	}
	if err != nil {
		return nil, e.recordFailure(ctx, caller, err)
	}
	result := "accepted"
	if known {
		result = "known"
	}
	e.enrolments.WithLabelValues(result).Inc()
	e.sessions.Expect(client.ObjectKeyFromObject(host))
	return host, nil
}

// findOrAdmit returns the key's host, and whether it existed before.
func (e *Enroller) findOrAdmit(ctx context.Context, caller Caller) (host *infrav1.ElementalHost, known bool, err error) {
	host, role, err := e.findByKey(ctx, caller)
	switch {
	case err != nil:
		return nil, false, err
	case host != nil:
		host, err = e.trust.Authorize(ctx, host, role, caller.Fingerprint, true)
		return host, true, err
	default:
		host, err = e.admit(ctx, caller)
		return host, false, err
	}
}

// findByKey returns the host that has the caller's key, and the key's role; nil if no host
// has it. Hosts that the machine has neither proved to be nor names as its home only claim
// its key, and everybody who may create ElementalHosts can do that. The caller's token then
// decides by its namespace.
func (e *Enroller) findByKey(ctx context.Context, caller Caller) (*infrav1.ElementalHost, hoststore.KeyRole, error) {
	home := caller.home()
	host, role, err := e.hosts.ByKey(ctx, caller.Fingerprint, home)
	ambiguous := errors.Is(err, hoststore.ErrAmbiguousKey)
	if err != nil && !ambiguous || err == nil && (host == nil || hoststore.HasProved(host, caller.Fingerprint) || host.Namespace == home.Namespace || host.IsGrantedFrom(home)) {
		return host, role, err
	}
	token, tokenErr := e.resolveToken(ctx, caller.Token)
	if tokenErr != nil {
		if _, refused := errors.AsType[*refusal](tokenErr); !refused {
			return nil, hoststore.KeyUnknown, tokenErr
		}
		if ambiguous {
			// Not admitted as a new host: the key would be in three.
			return nil, hoststore.KeyUnknown, refuseToken(audit.KeyInTwoHosts)
		}
		return host, role, nil
	}
	namespace := token.registration.Namespace
	host, role, err = e.hosts.ByKey(ctx, caller.Fingerprint, types.NamespacedName{Namespace: namespace})
	switch {
	case errors.Is(err, hoststore.ErrAmbiguousKey):
		return nil, hoststore.KeyUnknown, refuseToken(audit.KeyInTwoHosts)
	case err != nil:
		return nil, hoststore.KeyUnknown, err
	case host != nil && host.Namespace != namespace:
		return nil, hoststore.KeyUnknown, nil
	default:
		return host, role, nil
	}
}

// recordFailure counts and logs a failed enrolment, and returns err.
func (e *Enroller) recordFailure(ctx context.Context, caller Caller, err error) error {
	result := "failed"
	var refused *problem.Error
	if errors.As(err, &refused) && (refused.Status == http.StatusForbidden || refused.Status == http.StatusTooManyRequests) {
		result = "refused"
		e.audit.RecordRepeatable(ctx, audit.EnrolmentRefused, caller.Fingerprint+refused.Type, nil, "reason", reasonOf(err), "keyFingerprint", caller.Fingerprint)
	}
	e.enrolments.WithLabelValues(result).Inc()
	return err
}

// admit gives an unknown key a host. It tries a creation of unknown outcome, a host that
// was declared for the key, the caller's token and a re-adoption, in this order.
func (e *Enroller) admit(ctx context.Context, caller Caller) (*infrav1.ElementalHost, error) {
	if unfinished := e.creates.take(caller.Fingerprint); unfinished != nil {
		return e.finishCreate(ctx, caller, unfinished)
	}
	token, refused := e.resolveToken(ctx, caller.Token)
	if refused != nil {
		if _, ok := errors.AsType[*refusal](refused); !ok {
			return nil, refused
		}
		token = nil
	}
	declared, err := e.declaredByKey(ctx, caller, token)
	switch {
	case err != nil:
		return nil, err
	case declared != nil:
		return e.bindByKey(ctx, declared, caller, token)
	case token != nil:
		return e.admitByToken(ctx, caller, token)
	case caller.Request.Previous != nil:
		return e.readopt(ctx, caller, refused)
	default:
		return nil, refused
	}
}

// finishCreate repeats a creation of unknown outcome. The use of its token is counted
// already.
func (e *Enroller) finishCreate(ctx context.Context, caller Caller, host *infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	created, err := e.create(ctx, host)
	if err != nil {
		return nil, err
	}
	e.audit.Record(ctx, audit.Enrolled, created, "keyFingerprint", caller.Fingerprint, "approval", created.Spec.Approval, "pendingReason", created.Spec.PendingReason)
	return created, nil
}

// admitByToken binds the caller to a host that was declared for its serial number, or
// creates a host.
func (e *Enroller) admitByToken(ctx context.Context, caller Caller, token *resolvedToken) (*infrav1.ElementalHost, error) {
	returns, err := e.returns(ctx, caller, token.registration.Namespace)
	if err != nil {
		return nil, err
	}
	declared, ambiguous, err := e.declaredBySerial(ctx, token.registration.Namespace, caller.Request.Inventory.SMBIOS.SerialNumber)
	if err != nil {
		return nil, err
	}
	if declared != nil {
		bound, err := e.useToken(ctx, caller, token, returns, func() (*infrav1.ElementalHost, error) {
			return e.bind(ctx, declared, caller, token, returns)
		})
		if !errors.Is(err, errBound) {
			return bound, err
		}
		// Another machine with the same serial number was bound first.
		ambiguous = true
	}
	host := e.newHost(ctx, token, caller, ambiguous, returns)
	release, err := e.reserve(ctx, host, token.registration.Name, token.registration)
	if err != nil {
		return nil, err
	}
	defer release()
	created, err := e.useToken(ctx, caller, token, returns, func() (*infrav1.ElementalHost, error) { return e.create(ctx, host) })
	if err != nil {
		return nil, err
	}
	e.audit.Record(ctx, audit.Enrolled, created, "keyFingerprint", caller.Fingerprint, "approval", created.Spec.Approval,
		"pendingReason", created.Spec.PendingReason, "ElementalRegistration", klog.KObj(token.registration))
	return created, nil
}

// returns reports whether the machine had a host before: by its own account, or because its
// key has enrolled with a token of the namespace. As no host has the key now, an
// administrator has deleted that host, and a token that is still on the machine must not
// approve it again. The key is also known if a manager stopped in the middle of its
// enrolment; then an administrator has to approve the host as well.
func (e *Enroller) returns(ctx context.Context, caller Caller, namespace string) (bool, error) {
	if caller.Request.Previous != nil {
		return true, nil
	}
	return e.history.Contains(ctx, namespace, caller.Fingerprint)
}

// useToken counts a use of the token, records the key in its Secret, and then calls admit.
// In this order, a crash in between wastes a use instead of admitting one host too many.
// returns says that the key was known before, and must stay known if admit fails.
func (e *Enroller) useToken(ctx context.Context, caller Caller, token *resolvedToken, returns bool, admit func() (*infrav1.ElementalHost, error)) (*infrav1.ElementalHost, error) {
	if err := e.usage.add(ctx, token.secret, token.token.Hash, caller.Fingerprint); err != nil {
		if errors.Is(err, errNotUsable) {
			return nil, refuseToken(string(enrolment.UsedUp))
		}
		return nil, err
	}
	host, err := admit()
	if errors.Is(err, errOutcomeUnknown) {
		return nil, err // the use stays counted, as the host may exist
	}
	if err != nil {
		if err := e.usage.revert(ctx, token.secret, token.token.Hash, caller.Fingerprint, !returns); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "A token use is lost")
		}
		return nil, err
	}
	e.audit.Record(ctx, audit.TokenUsed, host, "Secret", klog.KObj(token.secret), "keyFingerprint", caller.Fingerprint)
	return host, nil
}

// recordForgotten records that a token no longer knows the hosts that have used it first.
func (e *Enroller) recordForgotten(ctx context.Context, secret *corev1.Secret, hosts int) {
	e.audit.RecordRepeatable(ctx, audit.KeysForgotten, string(secret.UID), nil, "Secret", klog.KObj(secret), "hosts", hosts)
}
