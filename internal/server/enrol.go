package server

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	enrolTimeout = 30 * time.Second
	// hostIDBytes are 80 bits: an ID is never used twice.
	hostIDBytes = 10
	// maxTokenHeader is far beyond any token.
	maxTokenHeader = 512
	// createAttempts bounds retries of a create that may or may not have worked.
	createAttempts = 3
)

// enrolee is who wants to be let in.
type enrolee struct {
	fingerprint string
	// token is blank if there is none.
	token   string
	request *protocol.EnrolRequest
}

// enrol gives a key a host. Enrolling twice with one key is the same as once,
// also when the token is used up: the key is the identity, the token only the
// invitation.
func (s *Server) enrol(w http.ResponseWriter, r *http.Request, who caller) error {
	request, err := decode[protocol.EnrolRequest](w, r)
	if err != nil {
		return err
	}
	// Before it is the key's turn: one key has one turn at a time.
	unlock, err := s.enrolling.lock(r.Context(), who.fingerprint)
	if err != nil {
		return err
	}
	defer unlock()
	leave, err := s.turns.wait(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	// A host that hangs up half-way would else waste the use of its token.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), enrolTimeout)
	defer cancel()
	result := "known"
	fresh := false
	host, role, err := s.hosts.byKey(ctx, who.fingerprint)
	switch {
	case errors.Is(err, errAmbiguousKey):
		// Let in as somebody new, it would be in three.
		err = refuseToken(keyInTwoHosts)
	case err != nil:
	case host != nil:
		host, err = s.judge(ctx, host, role, who.fingerprint, true)
	default:
		result, fresh = "accepted", true
		host, err = s.admitNew(ctx, enrolee{fingerprint: who.fingerprint, token: bearer(r), request: &request})
	}
	if err == nil && (fresh || host.Status.Connection == nil) {
		host, err = s.completeHost(ctx, host, &request)
	}
	if err != nil {
		return s.enrolmentFailed(r, who, err)
	}
	s.metrics.enrolments.WithLabelValues(result).Inc()
	s.presence.seen(client.ObjectKeyFromObject(host))
	return writeJSON(w, protocol.EnrolResponse{
		HostID:     host.Spec.HostID,
		Namespace:  host.Namespace,
		Name:       host.Name,
		Approved:   host.Spec.Approval == infrav1.ApprovalApproved,
		Generation: max(host.Spec.Identity.Generation, 1),
		ServerTime: s.clock.Now().UTC(),
	})
}

func (s *Server) enrolmentFailed(r *http.Request, who caller, err error) error {
	result := "failed"
	var refused *problemError
	if errors.As(err, &refused) && (refused.Status == http.StatusForbidden || refused.Status == http.StatusTooManyRequests) {
		result = "refused"
		s.auditOften(r.Context(), decidedEnrolmentRefused, who.fingerprint+refused.Type, nil, "reason", reasonOf(err), "keyFingerprint", who.fingerprint)
	}
	s.metrics.enrolments.WithLabelValues(result).Inc()
	return err
}

// admitNew gives an unknown key a host: the one that was declared for it, else
// one of the registration that its token is of, else, to a host that was enrolled
// before, a pending one.
func (s *Server) admitNew(ctx context.Context, who enrolee) (*infrav1.ElementalHost, error) {
	if attempt := s.attempts.take(who.fingerprint); attempt != nil {
		return s.settle(ctx, who, attempt)
	}
	declared, err := s.declaredByKey(ctx, who.fingerprint)
	if err != nil {
		return nil, err
	}
	if declared != nil {
		return s.bind(ctx, declared, who, nil)
	}
	invited, err := s.invitation(ctx, who.token)
	if err == nil {
		return s.admitInvited(ctx, who, invited)
	}
	if _, refused := errors.AsType[*refusal](err); refused && who.request.Previous != nil {
		return s.readopt(ctx, who, err)
	}
	return nil, err
}

// settle finds out about an earlier attempt to create the key's host, or repeats
// it. The token that it was invited by has been counted then.
func (s *Server) settle(ctx context.Context, who enrolee, attempt *infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	created, err := s.create(ctx, attempt)
	if err != nil {
		return nil, err
	}
	s.audit(ctx, decidedEnrolled, created, "keyFingerprint", who.fingerprint, "approval", created.Spec.Approval, "pendingReason", created.Spec.PendingReason)
	return created, nil
}

// admitInvited lets in who has a good token.
func (s *Server) admitInvited(ctx context.Context, who enrolee, invited *invitation) (*infrav1.ElementalHost, error) {
	declared, ambiguous, err := s.declaredBySerial(ctx, invited.registration.Namespace, who.request.Inventory.SMBIOS.SerialNumber)
	if err != nil {
		return nil, err
	}
	if declared != nil {
		bound, err := s.usingToken(ctx, who, invited, func() (*infrav1.ElementalHost, error) { return s.bind(ctx, declared, who, invited) })
		if !errors.Is(err, errBound) {
			return bound, err
		}
		// Another machine with the same serial number was quicker.
		ambiguous = true
	}
	host := s.newHost(ctx, invited, who, ambiguous)
	release, err := s.reserve(ctx, host, invited.registration)
	if err != nil {
		return nil, err
	}
	defer release()
	created, err := s.usingToken(ctx, who, invited, func() (*infrav1.ElementalHost, error) { return s.create(ctx, host) })
	if err != nil {
		return nil, err
	}
	s.audit(ctx, decidedEnrolled, created, "keyFingerprint", who.fingerprint, "approval", created.Spec.Approval,
		"pendingReason", created.Spec.PendingReason, "ElementalRegistration", klog.KObj(invited.registration))
	return created, nil
}

// usingToken lets in a host by admit. The token's use is counted first, so a crash
// in between wastes a use rather than letting one host too many in.
func (s *Server) usingToken(ctx context.Context, who enrolee, invited *invitation, admit func() (*infrav1.ElementalHost, error)) (*infrav1.ElementalHost, error) {
	if err := s.ledger.use(ctx, invited.secret, invited.token.Hash); err != nil {
		if errors.Is(err, errUsedUp) {
			return nil, refuseToken(string(enrolment.UsedUp))
		}
		return nil, err
	}
	host, err := admit()
	if errors.Is(err, errUndecided) {
		return nil, err // the use is for that host, should it be there
	}
	if err != nil {
		if err := s.ledger.giveBack(ctx, invited.secret, invited.token.Hash); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "A token use is lost")
		}
		return nil, err
	}
	s.audit(ctx, decidedTokenUsed, host, "Secret", klog.KObj(invited.secret), "keyFingerprint", who.fingerprint)
	return host, nil
}

// newHost returns the complete host to create. Nothing but its name can come
// from what the host says of itself, and that only as far as the pattern says.
func (s *Server) newHost(ctx context.Context, invited *invitation, who enrolee, ambiguous bool) *infrav1.ElementalHost {
	registration := invited.registration
	template := registration.Spec.HostTemplate
	hostID := newHostID()
	name, err := hostname.Render(template.NamePattern, hostname.Data{HostID: hostID, Inventory: who.request.Inventory})
	if err != nil {
		// A host with a plain name can be renamed; one at a remote site that is
		// refused because it has no serial number can't be helped.
		ctrl.LoggerFrom(ctx).Info("Name pattern does not suit a host", "reason", err.Error(), "ElementalRegistration", klog.KObj(registration))
		name = hostname.WithSuffix("host", hostID)
	}
	approval := infrav1.ApprovalPending
	var reason infrav1.PendingReason
	switch {
	case ambiguous:
		reason = infrav1.PendingAmbiguous
	case who.request.Previous != nil:
		// A host that an administrator may have deleted is not let in by a token that
		// was left on it.
		reason = infrav1.PendingReadopted
	case invited.approves():
		approval = infrav1.ApprovalApproved
	}
	return &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: registration.Namespace, Name: name, Labels: templateLabels(registration), Annotations: maps.Clone(template.Annotations),
		},
		Spec: infrav1.ElementalHostSpec{
			HostID:          hostID,
			Identity:        &infrav1.HostIdentity{KeyFingerprint: who.fingerprint, Generation: 1},
			RegistrationRef: &infrav1.LocalReference{Name: registration.Name},
			Approval:        approval,
			PendingReason:   reason,
		},
	}
}

// templateLabels are the labels of a registration's hosts. A host has no say in
// them.
func templateLabels(registration *infrav1.ElementalRegistration) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, registration.Spec.HostTemplate.Labels)
	labels[infrav1.RegistrationLabel] = registration.Name
	if filter, ok := registration.Labels[clusterv1.WatchLabel]; ok {
		labels[clusterv1.WatchLabel] = filter // else nobody would care for the host
	}
	return labels
}

// create creates the host, under another name if its own is taken. After
// errUndecided it is found or created when the key asks again.
func (s *Server) create(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	if taken, err := s.hosts.get(ctx, client.ObjectKeyFromObject(host)); err == nil && taken.Spec.HostID != host.Spec.HostID {
		host.Name = hostname.WithSuffix(host.Name, host.Spec.HostID)
	}
	var err error
	for range createAttempts {
		created := host.DeepCopy()
		if err = s.client.Create(ctx, created); err == nil {
			s.hosts.remember(created)
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			if definite(err) {
				return nil, fmt.Errorf("creating host: %w", err)
			}
			continue
		}
		var taken *infrav1.ElementalHost
		if taken, err = s.hosts.read(ctx, client.ObjectKeyFromObject(host)); err != nil {
			continue // it may be the host itself that is there
		}
		if taken.Spec.HostID == host.Spec.HostID {
			// An attempt that seemed to go wrong had worked.
			s.hosts.remember(taken)
			return taken, nil
		}
		err = errors.New("its name is taken")
		if !strings.HasSuffix(host.Name, host.Spec.HostID) {
			host.Name = hostname.WithSuffix(host.Name, host.Spec.HostID)
		}
	}
	s.attempts.keep(host)
	return nil, fmt.Errorf("creating host: %w: %w", errUndecided, err)
}

// definite tells whether the API server refused a write, rather than something
// going wrong on the way.
func definite(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

// completeHost writes a new host's first status, which already holds all
// conditions, so that nobody has to write after it.
func (s *Server) completeHost(ctx context.Context, host *infrav1.ElementalHost, request *protocol.EnrolRequest) (*infrav1.ElementalHost, error) {
	return s.hosts.update(ctx, client.ObjectKeyFromObject(host), func(host *infrav1.ElementalHost) error {
		setEnrolled(host, request, s.clock.Now())
		s.setConnection(host, infrav1.ConnectionConnected)
		return nil
	})
}

// bearer returns the token of a request, or nothing.
func bearer(r *http.Request) string {
	header := r.Header.Get("Authorization")
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || len(header) > maxTokenHeader {
		return ""
	}
	return strings.TrimSpace(token)
}

// newHostID returns 16 characters, good for a DNS label.
func newHostID() string {
	random := make([]byte, hostIDBytes)
	// It never fails: it ends the program rather than return weak bits.
	_, _ = rand.Read(random)
	return strings.ToLower(base32.StdEncoding.EncodeToString(random))
}
