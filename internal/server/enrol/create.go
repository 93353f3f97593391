package enrol

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// hostIDBytes are 80 random bits, so that an ID is never used twice.
	hostIDBytes = 10
	// createAttempts bounds retries of a creation of unknown outcome.
	createAttempts = 3
)

// newHost returns the host to create for a token. Only its name can depend on what the
// caller reports, and only as the registration's name pattern says. returns says that the
// machine had a host before.
func (e *Enroller) newHost(ctx context.Context, token *resolvedToken, caller Caller, ambiguous, returns bool) *infrav1.ElementalHost {
	registration := token.registration
	template := registration.Spec.HostTemplate
	hostID := newHostID()
	name, err := hostname.Render(template.NamePattern, hostname.Data{
		HostID: hostID, Inventory: caller.Request.Inventory, Hostname: reportedHostname(caller.Request),
	})
	if err != nil {
		// A refused host at a remote site is harder to repair than a host with a
		// generated name.
		ctrl.LoggerFrom(ctx).Info("Name pattern does not suit a host", "reason", err.Error(), "ElementalRegistration", klog.KObj(registration))
		name = hostname.WithSuffix("host", hostID)
	}
	approval := infrav1.ApprovalPending
	var reason infrav1.PendingReason
	switch {
	case ambiguous:
		reason = infrav1.PendingAmbiguous
	case returns:
		reason = infrav1.PendingReturned
	case token.approves():
		approval = infrav1.ApprovalApproved
	}
	return &infrav1.ElementalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: registration.Namespace, Name: name, Labels: templateLabels(registration), Annotations: maps.Clone(template.Annotations),
		},
		Spec: infrav1.ElementalHostSpec{
			HostID:          hostID,
			Identity:        &infrav1.HostIdentity{KeyFingerprint: caller.Fingerprint, Generation: 1},
			RegistrationRef: &infrav1.LocalReference{Name: registration.Name},
			Approval:        approval,
			PendingReason:   reason,
		},
	}
}

// reportedHostname returns the name that the host has given itself; blank if it reports none.
func reportedHostname(request *protocol.EnrolRequest) string {
	for _, address := range request.Addresses {
		if address.Type == protocol.AddressHostname {
			return address.Address
		}
	}
	return ""
}

// templateLabels returns the labels of a registration's hosts. They must not depend on what
// hosts report.
func templateLabels(registration *infrav1.ElementalRegistration) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, registration.Spec.HostTemplate.Labels)
	labels[infrav1.RegistrationLabel] = registration.Name
	if filter, ok := registration.Labels[clusterv1.WatchLabel]; ok {
		labels[clusterv1.WatchLabel] = filter // otherwise no manager would reconcile the host
	}
	return labels
}

// create creates the host, with a suffix if its name is taken. After errOutcomeUnknown, the
// next enrolment of the key finds or creates the same host.
func (e *Enroller) create(ctx context.Context, host *infrav1.ElementalHost) (*infrav1.ElementalHost, error) {
	if taken, err := e.hosts.Get(ctx, client.ObjectKeyFromObject(host)); err == nil && taken.Spec.HostID != host.Spec.HostID {
		host.Name = hostname.WithSuffix(host.Name, host.Spec.HostID)
	}
	var err error
	for range createAttempts {
		created := host.DeepCopy()
		if err = e.hosts.Create(ctx, created); err == nil {
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			if isRefused(err) {
				return nil, fmt.Errorf("creating host: %w", err)
			}
			continue
		}
		var taken *infrav1.ElementalHost
		if taken, err = e.hosts.ReadLive(ctx, client.ObjectKeyFromObject(host)); err != nil {
			continue // the existing host may be this one
		}
		if taken.Spec.HostID == host.Spec.HostID {
			// An earlier attempt succeeded although it returned an error.
			e.hosts.Remember(taken)
			return taken, nil
		}
		err = errors.New("its name is taken")
		if !strings.HasSuffix(host.Name, host.Spec.HostID) {
			host.Name = hostname.WithSuffix(host.Name, host.Spec.HostID)
		}
	}
	e.creates.add(host)
	return nil, fmt.Errorf("creating host: %w: %w", errOutcomeUnknown, err)
}

// isRefused reports whether the API server refused a write, so that its outcome is known.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

// newHostID returns 16 random characters that are valid in a DNS label.
func newHostID() string {
	random := make([]byte, hostIDBytes)
	// rand.Read never returns an error.
	_, _ = rand.Read(random)
	return strings.ToLower(base32.StdEncoding.EncodeToString(random))
}
