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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
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

// invitation is what a token is good for.
type invitation struct {
	secret       *corev1.Secret
	token        enrolment.Token
	registration *infrav1.ElementalRegistration
}

// enrol gives a key a host. Enrolling twice with one key is the same as once,
// also when the token is used up: the key is the identity, the token only the
// invitation.
func (s *Server) enrol(w http.ResponseWriter, r *http.Request, who caller) error {
	token := bearer(r)
	request, err := decode[protocol.EnrolRequest](w, r)
	if err != nil {
		return err
	}
	// A host that hangs up half-way would else waste the use of its token.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), enrolTimeout)
	defer cancel()
	unlock, err := s.enrolling.lock(ctx, who.fingerprint)
	if err != nil {
		return err
	}
	defer unlock()
	host, err := s.hosts.byKey(ctx, who.fingerprint)
	if err != nil {
		return err
	}
	result := "known"
	if host == nil {
		result = "accepted"
		host, err = s.createHost(ctx, r, who.fingerprint, token, &request)
	}
	if err == nil && host.Spec.Approval == infrav1.ApprovalRejected {
		err = errRevoked()
	}
	if err == nil && host.Status.Connection == nil {
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
	if errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		result = "refused"
		audit(r, "enrolment refused", nil, "reason", refused.Title, "keyFingerprint", who.fingerprint)
	}
	s.metrics.enrolments.WithLabelValues(result).Inc()
	return err
}

// createHost makes a host of an unknown key that has a good token: the token's
// use is counted first, so a crash in between wastes a use rather than letting
// one host too many in.
func (s *Server) createHost(ctx context.Context, r *http.Request, fingerprint, token string, request *protocol.EnrolRequest) (*infrav1.ElementalHost, error) {
	invited, err := s.invitation(ctx, token)
	if err != nil {
		return nil, err
	}
	host := s.newHost(ctx, invited, fingerprint, request)
	if err := s.ledger.use(ctx, invited.secret, invited.token.Hash); err != nil {
		if errors.Is(err, errUsedUp) {
			return nil, errTokenRefused()
		}
		return nil, err
	}
	created, err := s.create(ctx, host)
	if err != nil {
		if err := s.ledger.giveBack(ctx, invited.secret, invited.token.Hash); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "A token use is lost")
		}
		return nil, err
	}
	s.hosts.remember(created)
	audit(r, "host enrolled", created, "keyFingerprint", fingerprint, "approval", created.Spec.Approval,
		"ElementalRegistration", klog.KObj(invited.registration), "Secret", klog.KObj(invited.secret))
	return created, nil
}

// invitation finds out what a token is good for. All tokens that are good for
// nothing get the same answer.
func (s *Server) invitation(ctx context.Context, token string) (*invitation, error) {
	if token == "" {
		return nil, errTokenRefused()
	}
	var secrets corev1.SecretList
	hash := identity.HashToken(token)
	if err := s.client.List(ctx, &secrets, client.MatchingFields{index.TokenByHash: hash}); err != nil {
		return nil, fmt.Errorf("looking up token: %w", err)
	}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		read, err := enrolment.ReadToken(secret)
		if err != nil || !read.Matches(token) || read.State(s.clock.Now()) != enrolment.Usable || !secret.DeletionTimestamp.IsZero() {
			continue
		}
		registration := &infrav1.ElementalRegistration{}
		key := client.ObjectKey{Namespace: secret.Namespace, Name: secret.Labels[infrav1.RegistrationLabel]}
		err = s.client.Get(ctx, key, registration)
		if apierrors.IsNotFound(err) || err == nil && !registration.DeletionTimestamp.IsZero() {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("getting registration: %w", err)
		}
		return &invitation{secret: secret, token: read, registration: registration}, nil
	}
	return nil, errTokenRefused()
}

// newHost returns the complete host to create. Nothing but its name can come
// from what the host says of itself, and that only as far as the pattern says.
func (s *Server) newHost(ctx context.Context, invited *invitation, fingerprint string, request *protocol.EnrolRequest) *infrav1.ElementalHost {
	registration := invited.registration
	template := registration.Spec.HostTemplate
	hostID := newHostID()
	name, err := hostname.Render(template.NamePattern, hostname.Data{HostID: hostID, Inventory: request.Inventory})
	if err != nil {
		// A host with a plain name can be renamed; one at a remote site that is
		// refused because it has no serial number can't be helped.
		ctrl.LoggerFrom(ctx).Info("Name pattern does not suit a host", "reason", err.Error(), "ElementalRegistration", klog.KObj(registration))
		name = hostname.WithSuffix("host", hostID)
	}
	approval := infrav1.ApprovalPending
	if registration.Spec.Approval == infrav1.ApprovalAutomatic && !invited.token.LongLived(invited.secret) {
		approval = infrav1.ApprovalApproved
	}
	labels := map[string]string{}
	maps.Copy(labels, template.Labels)
	labels[infrav1.RegistrationLabel] = registration.Name
	if filter, ok := registration.Labels[clusterv1.WatchLabel]; ok {
		labels[clusterv1.WatchLabel] = filter // else nobody would care for the host
	}
	return &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: registration.Namespace, Name: name, Labels: labels, Annotations: maps.Clone(template.Annotations),
		},
		Spec: infrav1.ElementalHostSpec{
			HostID:          hostID,
			Identity:        &infrav1.HostIdentity{KeyFingerprint: fingerprint, Generation: 1},
			RegistrationRef: &infrav1.LocalReference{Name: registration.Name},
			Approval:        approval,
		},
	}
}

// create creates the host, under another name if its own is taken.
func (s *Server) create(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	if _, err := s.hosts.get(ctx, client.ObjectKeyFromObject(host)); err == nil {
		host.Name = hostname.WithSuffix(host.Name, host.Spec.HostID)
	}
	var err error
	for range createAttempts {
		created := host.DeepCopy()
		if err = s.client.Create(ctx, created); err == nil {
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			if definite(err) {
				break
			}
			continue
		}
		taken, readErr := s.hosts.read(ctx, client.ObjectKeyFromObject(host))
		if readErr == nil && taken.Spec.HostID == host.Spec.HostID {
			// An attempt that seemed to go wrong had worked.
			return taken, nil
		}
		if !strings.HasSuffix(host.Name, host.Spec.HostID) {
			host.Name = hostname.WithSuffix(host.Name, host.Spec.HostID)
		}
	}
	return nil, fmt.Errorf("creating host: %w", err)
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
		host.Status.Agent = agentOf(request.Hello)
		host.Status.Inventory = inventoryOf(request.Inventory)
		host.Status.Addresses = addressesOf(request.Addresses)
		host.Status.Cleanliness = cleanlinessOf(request.Cleanliness)
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

// locks lets one at a time work for a key.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits for the key and returns what gives it back.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		other, busy := l.held[key]
		if !busy {
			mine := make(chan struct{})
			l.held[key] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, key)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another request of the same key: %w", ctx.Err())
		}
	}
}
