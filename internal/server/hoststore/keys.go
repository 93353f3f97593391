package hoststore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// KeyRole is the role of a key in a host's identity.
type KeyRole int

// Roles of keys.
const (
	// KeyUnknown: the host does not have the key.
	KeyUnknown KeyRole = iota
	// KeyCurrent is the key in use.
	KeyCurrent
	// KeyNext is announced by a rotation and was not used yet.
	KeyNext
	// KeyFormer was in use before the last rotation.
	KeyFormer
)

// ErrAmbiguousKey is returned for a key that several ElementalHosts have, none of which the
// machine has proved to be.
var ErrAmbiguousKey = errors.New("the key is in two ElementalHosts")

// RoleOf returns the role of a key in a host's identity. It is KeyUnknown for every
// key if no machine is bound to the host, or if the host is granted to another namespace.
func RoleOf(host *infrav1.ElementalHost, fingerprint string) KeyRole {
	id := host.Spec.Identity
	if id == nil || id.KeyFingerprint == "" || fingerprint == "" || host.IsHandedOver() {
		return KeyUnknown
	}
	switch fingerprint {
	case id.KeyFingerprint:
		return KeyCurrent
	case id.NextKeyFingerprint:
		return KeyNext
	case id.FormerKeyFingerprint:
		return KeyFormer
	default:
		return KeyUnknown
	}
}

// AcceptsKey reports whether the key is the host's current or next one and the host is
// neither rejected nor locked. It is checked with the state that a write is based on.
func AcceptsKey(host *infrav1.ElementalHost, fingerprint string) bool {
	role := RoleOf(host, fingerprint)
	return (role == KeyCurrent || role == KeyNext) &&
		host.Spec.Approval != infrav1.ApprovalRejected && host.Spec.Lock == nil
}

// HasProved reports whether the machine has proved to have the key, as this host. Users
// can write any key into spec, but not this.
func HasProved(host *infrav1.ElementalHost, fingerprint string) bool {
	return fingerprint != "" && host.Status.KeyFingerprint == fingerprint
}

// ByKey returns the host that has the key, and the key's role; nil if no host has it.
// Whoever may create ElementalHosts can give one key to several of them. Then the host that
// the machine has proved to be keeps the key. Without such a host, home decides: the host
// that the machine was last enrolled as, by its own account. A key is in no host if home is
// in another namespace than all hosts that accept it. If home is blank and several hosts
// have the key, the error is ErrAmbiguousKey.
func (s *Store) ByKey(ctx context.Context, fingerprint string, home types.NamespacedName) (*infrav1.ElementalHost, KeyRole, error) {
	found, err := s.Find(ctx, index.HostByKey, fingerprint, func(host *infrav1.ElementalHost) bool {
		return RoleOf(host, fingerprint) != KeyUnknown
	})
	if err != nil {
		return nil, KeyUnknown, err
	}
	if found, home, err = s.followGrants(ctx, found, home); err != nil {
		return nil, KeyUnknown, err
	}
	// A host that accepts the key precedes hosts that have replaced it.
	accepting := filter(found, func(host *infrav1.ElementalHost) bool { return RoleOf(host, fingerprint) != KeyFormer })
	proved := filter(accepting, func(host *infrav1.ElementalHost) bool { return HasProved(host, fingerprint) })
	switch {
	case len(proved) == 1:
		found = proved
	case len(accepting) > 0:
		found = AtHome(accepting, home)
	default:
		// A former key shows that there is a copy of it, wherever the caller says it comes from.
		found = prefer(found, AtHome(found, home))
	}
	switch len(found) {
	case 0:
		return nil, KeyUnknown, nil
	case 1:
		return found[0], RoleOf(found[0], fingerprint), nil
	default:
		return nil, KeyUnknown, ErrAmbiguousKey
	}
}

// followGrants leaves out granted hosts whose pool says that it has the key itself, or has
// granted it elsewhere: of the two objects of a host exactly one has its key. If home is the
// pool's object, the granted host takes its place, because the machine was enrolled there. A
// pool that is not there, because only the other namespace was moved here, says nothing.
func (s *Store) followGrants(ctx context.Context, found []*infrav1.ElementalHost, home types.NamespacedName) ([]*infrav1.ElementalHost, types.NamespacedName, error) {
	var kept []*infrav1.ElementalHost
	at := home
	for _, host := range found {
		if from := host.Spec.GrantedFrom; from != nil {
			key := types.NamespacedName{Namespace: from.Namespace, Name: from.Name}
			pool, err := s.Get(ctx, key)
			switch {
			case errors.Is(err, ErrGone):
			case err != nil:
				return nil, home, err
			case !pool.IsHandedOver() || !pool.IsGrantedTo(host):
				continue
			case key == home:
				at = client.ObjectKeyFromObject(host)
			}
		}
		kept = append(kept, host)
	}
	return kept, at, nil
}

// Find returns the hosts that an index has under the value and whose newest known
// state matches.
func (s *Store) Find(ctx context.Context, field, value string, matches func(*infrav1.ElementalHost) bool) ([]*infrav1.ElementalHost, error) {
	// Own writes first: a write that is no longer among them is in the cache. They are
	// kept in a slice, as an event may remove one after the list was made.
	owns := s.own.find(field, value)
	var list infrav1.ElementalHostList
	if err := s.client.List(ctx, &list, client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking up host: %w", err)
	}
	var found []*infrav1.ElementalHost
	addIfMatches := func(host *infrav1.ElementalHost) {
		if matches(host) {
			found = append(found, host)
		}
	}
	for i := range list.Items {
		newest := &list.Items[i]
		// A newer write may have been added since, also one without the value.
		if own := s.own.get(client.ObjectKeyFromObject(newest)); own != nil && newer(own, newest) {
			newest = own
		}
		owns = slices.DeleteFunc(owns, func(own *infrav1.ElementalHost) bool {
			same := own.Name == list.Items[i].Name && own.Namespace == list.Items[i].Namespace
			if same && newer(own, newest) {
				newest = own
			}
			return same
		})
		addIfMatches(newest)
	}
	for _, own := range owns {
		addIfMatches(own)
	}
	return found, nil
}

// IsBindable reports whether a machine can be bound to the host, which was declared for it.
func IsBindable(host *infrav1.ElementalHost) bool {
	id := host.Spec.Identity
	return id != nil && id.Match != nil && id.KeyFingerprint == "" &&
		host.Spec.Approval != infrav1.ApprovalRejected && host.Spec.Lock == nil && host.DeletionTimestamp.IsZero()
}

// Declared returns the hosts that are declared for the key and that no machine is. home selects among
// them, as in ByKey: anybody who may create ElementalHosts can declare any key.
func (s *Store) Declared(ctx context.Context, fingerprint string, home types.NamespacedName) ([]*infrav1.ElementalHost, error) {
	found, err := s.Find(ctx, index.HostByMatchedKey, fingerprint, func(host *infrav1.ElementalHost) bool {
		id := host.Spec.Identity
		return id != nil && id.Match != nil && id.Match.KeyFingerprint == fingerprint && id.KeyFingerprint == ""
	})
	return AtHome(found, home), err
}

// AtHome returns the hosts in the namespace of home, or the one that is home. A blank home
// excludes none.
func AtHome(hosts []*infrav1.ElementalHost, home types.NamespacedName) []*infrav1.ElementalHost {
	if home.Namespace == "" {
		return hosts
	}
	hosts = filter(hosts, func(host *infrav1.ElementalHost) bool { return host.Namespace == home.Namespace })
	return prefer(hosts, filter(hosts, func(host *infrav1.ElementalHost) bool { return host.Name == home.Name }))
}

// prefer returns the preferred hosts, or all if there are none.
func prefer(all, preferred []*infrav1.ElementalHost) []*infrav1.ElementalHost {
	if len(preferred) > 0 {
		return preferred
	}
	return all
}

func filter(hosts []*infrav1.ElementalHost, keep func(*infrav1.ElementalHost) bool) []*infrav1.ElementalHost {
	var kept []*infrav1.ElementalHost
	for _, host := range hosts {
		if keep(host) {
			kept = append(kept, host)
		}
	}
	return kept
}
