package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// errBound tells that a host that was declared in advance is taken by now.
var errBound = errors.New("the declared host is taken")

// meaningless are serial numbers that manufacturers leave on whole series of
// boards, in lower case.
func meaningless(serial string) bool {
	return slices.Contains([]string{
		"", "none", "n/a", "na", "null", "unknown", "default string", "default", "invalid", "not specified", "not applicable",
		"not available", "to be filled by o.e.m.", "to be filled by o.e.m", "o.e.m.", "oem", "system serial number", "serial number",
		"chassis serial number", "empty", "0123456789", "123456789", "1234567890", "xxxxxxxxxx",
	}, strings.ToLower(serial)) || strings.Trim(serial, "0 .-_") == "" || strings.Trim(serial, "xX-") == ""
}

// bindable tells whether a machine may become the host.
func bindable(host *infrav1.ElementalHost) bool {
	id := host.Spec.Identity
	return id != nil && id.Match != nil && id.KeyFingerprint == "" &&
		host.Spec.Approval != infrav1.ApprovalRejected && host.Spec.Lock == nil && host.DeletionTimestamp.IsZero()
}

// declaredByKey returns the host that was declared for the key, or nil. A key
// proves itself, so it needs neither token nor namespace; but it must be said of
// one host only.
func (s *Server) declaredByKey(ctx context.Context, fingerprint string) (*infrav1.ElementalHost, error) {
	found, err := s.hosts.find(ctx, index.HostByMatchedKey, fingerprint, func(host *infrav1.ElementalHost) bool {
		id := host.Spec.Identity
		return id != nil && id.Match != nil && id.Match.KeyFingerprint == fingerprint && id.KeyFingerprint == ""
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, nil //nolint:nilnil // documented
	case len(found) > 1:
		return nil, refuseToken("SeveralHostsDeclareTheKey")
	case !bindable(found[0]):
		return nil, refuseToken("DeclaredHostIsShutOut")
	default:
		return found[0], nil
	}
}

// declaredBySerial returns the host of the namespace that was declared for the
// serial number, if there is one, or else whether it is ambiguous which host the
// machine is: a serial number is what the machine says of itself, and no proof.
func (s *Server) declaredBySerial(ctx context.Context, namespace, serial string) (host *infrav1.ElementalHost, ambiguous bool, err error) {
	serial = text(serial)
	if meaningless(serial) {
		return nil, false, nil
	}
	found, err := s.hosts.find(ctx, index.HostByMatchedSerial, serial, func(host *infrav1.ElementalHost) bool {
		id := host.Spec.Identity
		return host.Namespace == namespace && id != nil && id.Match != nil && strings.TrimSpace(id.Match.SerialNumber) == serial
	})
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	if len(found) > 1 || !bindable(found[0]) {
		return nil, true, nil
	}
	return found[0], false, nil
}

// bind makes a machine a host that was declared in advance, by compare-and-swap:
// of several machines one becomes the host; the others get errBound. Invited is
// nil if the key itself was declared.
func (s *Server) bind(ctx context.Context, declared *infrav1.ElementalHost, who enrolee, invited *invitation) (*infrav1.ElementalHost, error) {
	match := *declared.Spec.Identity.Match
	approves, err := s.approvesBound(ctx, declared, invited)
	if err != nil {
		return nil, err
	}
	hostID := newHostID()
	bound, err := s.hosts.updateSpec(ctx, client.ObjectKeyFromObject(declared), func(host *infrav1.ElementalHost) error {
		if !bindable(host) || *host.Spec.Identity.Match != match {
			return errBound
		}
		id := host.Spec.Identity
		// A host that was another machine before is at its next generation.
		id.Generation++
		id.KeyFingerprint, id.NextKeyFingerprint, id.FormerKeyFingerprint = who.fingerprint, "", ""
		if host.Spec.HostID == "" {
			host.Spec.HostID = hostID
		}
		if host.Spec.RegistrationRef == nil && invited != nil {
			host.Spec.RegistrationRef = &infrav1.LocalReference{Name: invited.registration.Name}
		}
		if approves && who.request.Previous == nil {
			host.Spec.Approval = infrav1.ApprovalApproved
		}
		return nil
	})
	if err != nil {
		if invited == nil && errors.Is(err, errBound) {
			return nil, refuseToken("DeclaredHostIsTaken")
		}
		return nil, err
	}
	s.audit(ctx, decidedBound, bound, "keyFingerprint", who.fingerprint, "approval", bound.Spec.Approval,
		"byKey", match.KeyFingerprint != "", "generation", bound.Spec.Identity.Generation)
	return bound, nil
}

// approvesBound tells whether the registration lets a machine in that becomes a
// declared host: that of its token, else that which the host names.
func (s *Server) approvesBound(ctx context.Context, declared *infrav1.ElementalHost, invited *invitation) (bool, error) {
	if invited != nil {
		return invited.approves(), nil
	}
	ref := declared.Spec.RegistrationRef
	if ref == nil {
		return false, nil
	}
	registration := &infrav1.ElementalRegistration{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: declared.Namespace, Name: ref.Name}, registration)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting ElementalRegistration %s: %w", klog.KRef(declared.Namespace, ref.Name), err)
	}
	return err == nil && registration.Spec.Approval == infrav1.ApprovalAutomatic, nil
}
