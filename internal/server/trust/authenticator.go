package trust

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// lockTimeout bounds the write of a lock, which does not end with the HTTP request: the
// caller may be the copy.
const lockTimeout = 30 * time.Second

// Waker makes a host's open polls authenticate again.
type Waker interface {
	Wake(ctx context.Context, host types.NamespacedName)
}

// Keys remembers the keys of hosts beyond their deletion.
type Keys interface {
	// AddNext adds the next key of a host wherever the current one is known.
	AddNext(ctx context.Context, namespace, current, next string) error
}

// Options of an Authenticator.
type Options struct {
	Hosts *hoststore.Store
	Keys  Keys
	Audit *audit.Log
	Polls Waker
	// Recorder records Events on ElementalHosts.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Timers   *timer.Queue
}

// Authenticator authenticates hosts by their keys. It is safe for concurrent use.
type Authenticator struct {
	hosts    *hoststore.Store
	keys     Keys
	audit    *audit.Log
	polls    Waker
	recorder events.EventRecorder
	recent   *recentRotations
}

// New returns an Authenticator.
func New(o Options) *Authenticator {
	return &Authenticator{
		hosts: o.Hosts, keys: o.Keys, audit: o.Audit, polls: o.Polls, recorder: o.Recorder,
		recent: &recentRotations{clock: o.Clock, timers: o.Timers, at: map[types.NamespacedName]time.Time{}},
	}
}

// Start begins the grace period in which any host may have rotated its key while another
// process served it. Call it once, before HTTP requests are served.
func (a *Authenticator) Start() { a.recent.started = a.recent.clock.Now() }

// Authenticate returns the host that has the key, unless the host is rejected or locked.
// home selects among several hosts with the key, see hoststore.Store.ByKey.
// If commit is true and the key is the host's next one, it becomes the current key,
// because its use shows that the host has stored it. A report must not commit: a host
// sends an empty report to find out which of two keys is accepted before it stores one.
func (a *Authenticator) Authenticate(ctx context.Context, fingerprint string, home types.NamespacedName, commit bool) (*infrav1.ElementalHost, error) {
	host, role, err := a.hosts.ByKey(ctx, fingerprint, home)
	if errors.Is(err, hoststore.ErrAmbiguousKey) {
		a.audit.RecordRepeatable(ctx, audit.KeyRefused, fingerprint, nil, "reason", audit.KeyInTwoHosts, "keyFingerprint", fingerprint)
		return nil, problem.UnknownHost()
	}
	if err != nil {
		return nil, err
	}
	if host == nil {
		return nil, a.unknown(ctx, fingerprint, home)
	}
	return a.Authorize(ctx, host, role, fingerprint, commit)
}

// unknown returns the problem of a key that is in no host. It tells the machine to enrol if a host is
// declared for the key, which enrolling would tell it too.
func (a *Authenticator) unknown(ctx context.Context, fingerprint string, home types.NamespacedName) error {
	declared, err := a.hosts.Declared(ctx, fingerprint, home)
	if err != nil {
		return err
	}
	p := problem.UnknownHost()
	p.Enrol = len(declared) == 1 && hoststore.IsBindable(declared[0])
	return p
}

// Confirm records that the machine has proved to have the key, as this host. It is called
// when the machine names the host as its home: after a restore or a move, status does not
// say it any more, and others may have created hosts with the same key.
func (a *Authenticator) Confirm(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) (*infrav1.ElementalHost, error) {
	if hoststore.HasProved(host, fingerprint) || hoststore.RoleOf(host, fingerprint) != hoststore.KeyCurrent {
		return host, nil
	}
	return a.hosts.UpdateStatus(ctx, client.ObjectKeyFromObject(host), func(host *infrav1.ElementalHost) error {
		if hoststore.AcceptsKey(host, fingerprint) && hoststore.RoleOf(host, fingerprint) == hoststore.KeyCurrent {
			host.Status.KeyFingerprint = fingerprint
		}
		return nil
	})
}

// Authorize is Authenticate for a host that was found by the key.
func (a *Authenticator) Authorize(ctx context.Context, host *infrav1.ElementalHost, role hoststore.KeyRole, fingerprint string, commit bool) (*infrav1.ElementalHost, error) {
	switch {
	case host.Spec.Approval == infrav1.ApprovalRejected:
		return nil, a.refuse(ctx, host, fingerprint, "Rejected", problem.Revoked())
	case host.Spec.Lock != nil:
		return nil, a.refuse(ctx, host, fingerprint, "Locked", problem.Locked())
	case role == hoststore.KeyFormer && a.recent.includes(client.ObjectKeyFromObject(host)):
		return nil, a.refuse(ctx, host, fingerprint, "FormerKey", problem.StaleGeneration())
	case role == hoststore.KeyFormer:
		return nil, a.lock(ctx, host, fingerprint, "The host's former key was used after the host had changed it: there is a copy of the key",
			func(newest *infrav1.ElementalHost) bool {
				return hoststore.RoleOf(newest, fingerprint) == hoststore.KeyFormer
			})
	case role == hoststore.KeyNext && commit:
		return a.promote(ctx, host, fingerprint)
	default:
		return host, nil
	}
}

// CheckFence returns a problem if the host is fenced.
func (a *Authenticator) CheckFence(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) error {
	if host.Spec.Fence == nil {
		return nil
	}
	return a.refuse(ctx, host, fingerprint, "Fenced", problem.Fenced())
}

// refuse records that a known key was refused, and returns err.
func (a *Authenticator) refuse(ctx context.Context, host *infrav1.ElementalHost, fingerprint, reason string, err error) error {
	a.audit.RecordRepeatable(ctx, audit.KeyRefused, string(host.UID)+reason, host, "reason", reason, "keyFingerprint", fingerprint)
	return err
}

// promote makes the next key the current one.
func (a *Authenticator) promote(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) (*infrav1.ElementalHost, error) {
	key := client.ObjectKeyFromObject(host)
	promoted := false
	// Before the write: otherwise an HTTP request with the former key could lock the host.
	a.recent.add(key)
	after, err := a.hosts.UpdateSpec(ctx, key, func(host *infrav1.ElementalHost) error {
		promoted = false
		if !hoststore.AcceptsKey(host, fingerprint) {
			return problem.UnknownHost()
		}
		if host.IsFixed() {
			return problem.Busy(time.Second)
		}
		if hoststore.RoleOf(host, fingerprint) == hoststore.KeyNext {
			id := host.Spec.Identity
			id.FormerKeyFingerprint, id.KeyFingerprint, id.NextKeyFingerprint = id.KeyFingerprint, fingerprint, ""
			id.Generation = max(id.Generation, 1) + 1
			promoted = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if promoted {
		a.audit.Record(ctx, audit.Promoted, after, "keyFingerprint", fingerprint, "generation", after.Spec.Identity.Generation)
		a.polls.Wake(ctx, key) // polls with the former key end
	}
	return a.Confirm(ctx, after, fingerprint)
}

// LockReturnedBoot locks a host because a poll came from a boot that a later boot has
// followed. It returns the problem for the caller.
func (a *Authenticator) LockReturnedBoot(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) error {
	return a.lock(ctx, host, fingerprint, "A boot of the host asked for its plan after a later boot had done so: two machines use the host's key",
		func(newest *infrav1.ElementalHost) bool { return hoststore.AcceptsKey(newest, fingerprint) })
}

// lock refuses all keys of the host from now on, if the newest state of the host still
// proves that two machines use its key. It returns the problem for the caller.
func (a *Authenticator) lock(ctx context.Context, host *infrav1.ElementalHost, fingerprint, message string, proves func(*infrav1.ElementalHost) bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
	defer cancel()
	key := client.ObjectKeyFromObject(host)
	locked := false
	after, err := a.hosts.UpdateSpec(ctx, key, func(host *infrav1.ElementalHost) error {
		locked = false
		if host.Spec.Lock != nil {
			return nil
		}
		if !proves(host) {
			return problem.Busy(time.Second) // the caller is authenticated again when it retries
		}
		host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned, Message: message}
		locked = true
		return nil
	})
	if err != nil {
		return err
	}
	if locked {
		a.audit.Record(ctx, audit.Locked, after, "reason", infrav1.LockCloned, "message", message, "keyFingerprint", fingerprint)
		a.recorder.Eventf(after, nil, corev1.EventTypeWarning, infrav1.IdentityClonedReason, "Lock", "%s", message)
		a.polls.Wake(ctx, key)
	}
	return problem.Locked()
}
