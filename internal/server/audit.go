package server

import (
	"context"
	"net"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// decision is a kind of security decision: what the audit log and the metric call
// it.
type decision string

const (
	decidedEnrolled         decision = "Enrolled"
	decidedBound            decision = "Bound"
	decidedReadopted        decision = "Readopted"
	decidedEnrolmentRefused decision = "EnrolmentRefused"
	decidedPendingLimit     decision = "PendingLimit"
	decidedTokenUsed        decision = "TokenUsed"
	decidedRotated          decision = "Rotated"
	decidedRotationRefused  decision = "RotationRefused"
	decidedPromoted         decision = "Promoted"
	decidedLocked           decision = "Locked"
	decidedUnlocked         decision = "Unlocked"
	decidedFenced           decision = "Fenced"
	decidedUnfenced         decision = "Unfenced"
	decidedKeyRefused       decision = "KeyRefused"
	decidedBootstrapServed  decision = "BootstrapServed"
	decidedApproved         decision = "Approved"
	decidedRejected         decision = "Rejected"
	decidedPending          decision = "Pending"
)

const (
	// spareFor is how long a refusal that repeats is not logged again: a host that
	// is shut out asks for ever.
	spareFor = 10 * time.Minute
	// maxSpared bounds what is remembered for that, of each kind of decision: strangers,
	// who can fill one, can't keep the others out of the log.
	maxSpared = 8192
)

// sourceKey is the context key of the connection that a request came by.
type sourceKey struct{}

// audit logs a security decision and counts it. Keys are named by their
// fingerprint, tokens not at all. Host may be nil.
func (s *Server) audit(ctx context.Context, what decision, host *infrav1.ElementalHost, more ...any) {
	s.metrics.decisions.WithLabelValues(string(what)).Inc()
	log := ctrl.LoggerFrom(ctx).WithName("audit").WithValues("decision", what)
	if conn, ok := ctx.Value(sourceKey{}).(net.Conn); ok {
		log = log.WithValues("source", conn.RemoteAddr().String())
	}
	if host != nil {
		log = log.WithValues("ElementalHost", klog.KObj(host), "hostID", host.Spec.HostID)
	}
	log.Info("Decided", more...)
}

// auditOften is audit for what somebody can have repeated at will: of one subject
// it is logged once in a while, and always counted. It tells whether it was logged.
func (s *Server) auditOften(ctx context.Context, what decision, subject string, host *infrav1.ElementalHost, more ...any) bool {
	if !s.spared.first(what, subject) {
		s.metrics.decisions.WithLabelValues(string(what)).Inc()
		return false
	}
	s.audit(ctx, what, host, more...)
	return true
}

// sparing remembers what was said a short while ago.
type sparing struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	said map[decision]*said
}

// said is when decisions of one kind were logged, by their subject.
type said struct {
	at     map[string]time.Time
	purged time.Time
}

// first tells whether this was not said within spareFor, and takes note of it.
func (s *sparing) first(what decision, subject string) bool {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.said[what]
	if of == nil {
		of = &said{at: map[string]time.Time{}}
		s.said[what] = of
	}
	if at, ok := of.at[subject]; ok && now.Sub(at) < spareFor {
		return false
	}
	if len(of.at) >= maxSpared && !of.purge(now) {
		return false
	}
	of.at[subject] = now
	return true
}

// purge forgets what may be said again, not too often. It tells whether there is
// room then.
func (s *said) purge(now time.Time) bool {
	if now.Sub(s.purged) < time.Second {
		return false
	}
	s.purged = now
	for subject, at := range s.at {
		if now.Sub(at) >= spareFor {
			delete(s.at, subject)
		}
	}
	return len(s.at) < maxSpared
}

// watched logs what administrators decided.
func (s *Server) watched(ctx context.Context, before, after *infrav1.ElementalHost) {
	if before.Spec.Approval != after.Spec.Approval {
		what := decidedPending
		switch after.Spec.Approval {
		case infrav1.ApprovalApproved:
			what = decidedApproved
		case infrav1.ApprovalRejected:
			what = decidedRejected
		case infrav1.ApprovalPending:
		}
		s.audit(ctx, what, after, "before", before.Spec.Approval)
	}
	if before.Spec.Lock != nil && after.Spec.Lock == nil {
		s.audit(ctx, decidedUnlocked, after)
	}
	switch {
	case before.Spec.Fence == nil && after.Spec.Fence != nil:
		s.audit(ctx, decidedFenced, after, "reason", after.Spec.Fence.Reason)
	case before.Spec.Fence != nil && after.Spec.Fence == nil:
		s.audit(ctx, decidedUnfenced, after)
	}
}
