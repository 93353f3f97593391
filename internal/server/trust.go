package server

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// formerKeyGrace is how long after a rotation the former key is refused without
	// being held against the host: requests that its agent had begun with that key
	// may still arrive. An agent gives a request half a minute.
	formerKeyGrace = time.Minute
	// lockTimeout bounds the write of a lock, which happens also when the copy has
	// hung up.
	lockTimeout = 30 * time.Second
)

// authenticate returns the host that has the key, if it is not shut out. With
// commit, a key that a rotation changes to becomes the key in use by that: the
// host has made it its own. A report does not say so; a host may ask by an empty
// one which of two keys is good, before it commits itself.
func (s *Server) authenticate(ctx context.Context, fingerprint string, commit bool) (*infrav1.ElementalHost, error) {
	host, role, err := s.hosts.byKey(ctx, fingerprint)
	if errors.Is(err, errAmbiguousKey) {
		s.auditOften(ctx, decidedKeyRefused, fingerprint, nil, "reason", keyInTwoHosts, "keyFingerprint", fingerprint)
		return nil, errUnknownHost()
	}
	if err != nil {
		return nil, err
	}
	if host == nil {
		return nil, errUnknownHost()
	}
	return s.judge(ctx, host, role, fingerprint, commit)
}

// judge is authenticate for a host that was found.
func (s *Server) judge(ctx context.Context, host *infrav1.ElementalHost, role keyRole, fingerprint string, commit bool) (*infrav1.ElementalHost, error) {
	switch {
	case host.Spec.Approval == infrav1.ApprovalRejected:
		return nil, s.refuse(ctx, host, fingerprint, "Rejected", errRevoked())
	case host.Spec.Lock != nil:
		return nil, s.refuse(ctx, host, fingerprint, "Locked", errLocked())
	case role == keyFormer && s.rotated.recently(client.ObjectKeyFromObject(host)):
		return nil, s.refuse(ctx, host, fingerprint, "FormerKey", errStaleGeneration())
	case role == keyFormer:
		return nil, s.lock(ctx, host, fingerprint, "The host's former key was used after the host had changed it: there is a copy of the key",
			func(now *infrav1.ElementalHost) bool { return roleOf(now, fingerprint) == keyFormer })
	case role == keyNext && commit:
		return s.promote(ctx, host, fingerprint)
	default:
		return host, nil
	}
}

// refuse notes that a key that is known was refused.
func (s *Server) refuse(ctx context.Context, host *infrav1.ElementalHost, fingerprint, reason string, err error) error {
	s.auditOften(ctx, decidedKeyRefused, string(host.UID)+reason, host, "reason", reason, "keyFingerprint", fingerprint)
	return err
}

// promote makes the next key the one in use.
func (s *Server) promote(ctx context.Context, host *infrav1.ElementalHost, fingerprint string) (*infrav1.ElementalHost, error) {
	key := client.ObjectKeyFromObject(host)
	promoted := false
	// Before the write, so that nobody is held to it who can't have known.
	s.rotated.note(key)
	after, err := s.hosts.updateSpec(ctx, key, func(host *infrav1.ElementalHost) error {
		promoted = false
		if !holds(host, fingerprint) {
			return errUnknownHost()
		}
		if roleOf(host, fingerprint) == keyNext {
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
		s.audit(ctx, decidedPromoted, after, "keyFingerprint", fingerprint, "generation", after.Spec.Identity.Generation)
		s.presence.wake(key) // polls with the former key end
	}
	return after, nil
}

// lock shuts out everybody who has the host's key, if what proves that there are
// two still holds for the host's newest state. It returns what the caller is told.
func (s *Server) lock(ctx context.Context, host *infrav1.ElementalHost, fingerprint, message string, proven func(*infrav1.ElementalHost) bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
	defer cancel()
	key := client.ObjectKeyFromObject(host)
	locked := false
	after, err := s.hosts.updateSpec(ctx, key, func(host *infrav1.ElementalHost) error {
		locked = false
		if host.Spec.Lock != nil {
			return nil
		}
		if !proven(host) {
			return errBusy(time.Second) // it is another matter by now
		}
		host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned, Message: message}
		locked = true
		return nil
	})
	if err != nil {
		return err
	}
	if locked {
		s.audit(ctx, decidedLocked, after, "reason", infrav1.LockCloned, "message", message, "keyFingerprint", fingerprint)
		s.hosts.recorder.Eventf(after, nil, corev1.EventTypeWarning, infrav1.IdentityClonedReason, "Lock", "%s", message)
		s.presence.wake(key)
	}
	return errLocked()
}

// holds tells whether the host still has the key and is not shut out. It is
// asked with the state that a write is made against.
func holds(host *infrav1.ElementalHost, fingerprint string) bool {
	role := roleOf(host, fingerprint)
	return (role == keyCurrent || role == keyNext) &&
		host.Spec.Approval != infrav1.ApprovalRejected && host.Spec.Lock == nil
}

// rotations remembers which hosts have just changed their key. Of what another
// process has seen it knows nothing, so that for a while after its start every
// host may have.
type rotations struct {
	clock    clock.PassiveClock
	schedule *schedule
	started  time.Time

	mu sync.Mutex
	at map[types.NamespacedName]time.Time
}

func (r *rotations) note(host types.NamespacedName) {
	now := r.clock.Now()
	r.mu.Lock()
	r.at[host] = now
	r.mu.Unlock()
	r.schedule.at(now.Add(formerKeyGrace), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.at[host].Equal(now) {
			delete(r.at, host)
		}
	})
}

func (r *rotations) recently(host types.NamespacedName) bool {
	now := r.clock.Now()
	r.mu.Lock()
	at, ok := r.at[host]
	r.mu.Unlock()
	return ok && now.Sub(at) < formerKeyGrace || now.Sub(r.started) < formerKeyGrace
}
