package enrol

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/facts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/hoststore"
)

// errBound is returned when another machine is already bound to a declared host.
var errBound = errors.New("the declared host is taken")

// declaredByKey returns the host that was declared for the caller's key, or nil. The key
// proves the machine's identity, but not where it belongs: anybody who may create
// ElementalHosts can declare any key. So only declarations in the namespace of the token
// count, or without a usable token those in the namespace that the machine comes from. A
// machine without both follows its only declaration. token is nil if it can't be used.
func (e *Enroller) declaredByKey(ctx context.Context, caller Caller, token *resolvedToken) (*infrav1.ElementalHost, error) {
	home := caller.home()
	if token != nil {
		home = types.NamespacedName{Namespace: token.registration.Namespace}
	}
	found, err := e.hosts.Declared(ctx, caller.Fingerprint, home)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, nil
	case len(found) > 1:
		return nil, refuseToken("SeveralHostsDeclareTheKey")
	case !hoststore.IsBindable(found[0]):
		return nil, refuseToken("DeclaredHostIsShutOut")
	default:
		return found[0], nil
	}
}

// declaredBySerial returns the host of the namespace that was declared for the serial
// number, or nil. ambiguous is true if no single bindable host was declared for it: the
// machine reports its serial number itself, which proves nothing.
func (e *Enroller) declaredBySerial(ctx context.Context, namespace, serial string) (host *infrav1.ElementalHost, ambiguous bool, err error) {
	serial = facts.Text(serial)
	if facts.MeaninglessSerial(serial) {
		return nil, false, nil
	}
	found, err := e.hosts.Find(ctx, index.HostByMatchedSerial, serial, func(host *infrav1.ElementalHost) bool {
		id := host.Spec.Identity
		return host.Namespace == namespace && id != nil && id.Match != nil && strings.TrimSpace(id.Match.SerialNumber) == serial
	})
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	if len(found) > 1 || !hoststore.IsBindable(found[0]) {
		return nil, true, nil
	}
	return found[0], false, nil
}

// bindByKey binds the caller to the host that was declared for its key. The token is not
// used, but it knows the key from now on: after the deletion of the host it must not approve
// the machine. An administrator who has declared the key after such a deletion wants the
// machine back, so the history of the key does not count here.
func (e *Enroller) bindByKey(ctx context.Context, declared *infrav1.ElementalHost, caller Caller, token *resolvedToken) (*infrav1.ElementalHost, error) {
	if token != nil {
		if err := e.history.Add(ctx, token.secret, caller.Fingerprint); err != nil {
			return nil, err
		}
	}
	return e.bind(ctx, declared, caller, nil, caller.Request.Previous != nil)
}

// bind binds the caller's key to a declared host by an optimistically locked write: of
// several machines only one succeeds, and the others get errBound. token is nil if the
// host was declared for the key. A machine that returns is not approved.
func (e *Enroller) bind(ctx context.Context, declared *infrav1.ElementalHost, caller Caller, token *resolvedToken, returns bool) (*infrav1.ElementalHost, error) {
	match := *declared.Spec.Identity.Match
	approves, err := e.approvesBound(ctx, declared, token)
	if err != nil {
		return nil, err
	}
	hostID := newHostID()
	bound, err := e.hosts.UpdateSpec(ctx, client.ObjectKeyFromObject(declared), func(host *infrav1.ElementalHost) error {
		if !hoststore.IsBindable(host) || *host.Spec.Identity.Match != match {
			return errBound
		}
		id := host.Spec.Identity
		// The generation continues if another machine was bound before.
		id.Generation++
		id.KeyFingerprint, id.NextKeyFingerprint, id.FormerKeyFingerprint = caller.Fingerprint, "", ""
		if host.Spec.HostID == "" {
			host.Spec.HostID = hostID
		}
		if host.Spec.RegistrationRef == nil && token != nil {
			host.Spec.RegistrationRef = &infrav1.LocalReference{Name: token.registration.Name}
		}
		if approves && !returns {
			host.Spec.Approval = infrav1.ApprovalApproved
		}
		return nil
	})
	if err != nil {
		if token == nil && errors.Is(err, errBound) {
			return nil, refuseToken("DeclaredHostIsTaken")
		}
		return nil, err
	}
	e.audit.Record(ctx, audit.Bound, bound, "keyFingerprint", caller.Fingerprint, "approval", bound.Spec.Approval,
		"byKey", match.KeyFingerprint != "", "generation", bound.Spec.Identity.Generation)
	return bound, nil
}

// approvesBound reports whether a machine that is bound to the declared host is approved
// without an administrator: by the token, or else by the registration that the host names.
// The token of another registration never approves: otherwise whoever has any token of the
// namespace gets the approval of a host by its serial number.
func (e *Enroller) approvesBound(ctx context.Context, declared *infrav1.ElementalHost, token *resolvedToken) (bool, error) {
	ref := declared.Spec.RegistrationRef
	if token != nil {
		return token.approves() && (ref == nil || ref.Name == token.registration.Name), nil
	}
	if ref == nil {
		return false, nil
	}
	registration := &infrav1.ElementalRegistration{}
	err := e.client.Get(ctx, client.ObjectKey{Namespace: declared.Namespace, Name: ref.Name}, registration)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting ElementalRegistration %s: %w", klog.KRef(declared.Namespace, ref.Name), err)
	}
	return err == nil && registration.Spec.Approval == infrav1.ApprovalAutomatic, nil
}
