package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

// keyRole is what a key is to a host.
type keyRole int

const (
	keyUnknown keyRole = iota
	// keyCurrent is the key in use.
	keyCurrent
	// keyNext is the one that a rotation under way changes to.
	keyNext
	// keyFormer is the one before the last rotation.
	keyFormer
)

// keyInTwoHosts is the audit log's reason for errAmbiguousKey.
const keyInTwoHosts = "KeyInTwoHosts"

var errAmbiguousKey = errors.New("the key is in two ElementalHosts")

// roleOf tells what a key is to a host. A host that no machine is has no keys.
func roleOf(host *infrav1.ElementalHost, fingerprint string) keyRole {
	id := host.Spec.Identity
	if id == nil || id.KeyFingerprint == "" || fingerprint == "" {
		return keyUnknown
	}
	switch fingerprint {
	case id.KeyFingerprint:
		return keyCurrent
	case id.NextKeyFingerprint:
		return keyNext
	case id.FormerKeyFingerprint:
		return keyFormer
	default:
		return keyUnknown
	}
}

// byKey returns the host that has the key, not to be changed, and what the key is
// to it; nil if there is none. A key that is in two hosts, which only a person can
// have done, is neither's, and the error is errAmbiguousKey.
func (h *hosts) byKey(ctx context.Context, fingerprint string) (*infrav1.ElementalHost, keyRole, error) {
	found, err := h.find(ctx, index.HostByKey, fingerprint, func(host *infrav1.ElementalHost) bool {
		return roleOf(host, fingerprint) != keyUnknown
	})
	if err != nil {
		return nil, keyUnknown, err
	}
	// Where a key is good counts before where it was.
	good := filter(found, func(host *infrav1.ElementalHost) bool { return roleOf(host, fingerprint) != keyFormer })
	if len(good) > 0 {
		found = good
	}
	switch len(found) {
	case 0:
		return nil, keyUnknown, nil
	case 1:
		return found[0], roleOf(found[0], fingerprint), nil
	default:
		return nil, keyUnknown, errAmbiguousKey
	}
}

// find returns the hosts, not to be changed, that an index has under the value and
// that are, as far as is known now, what is looked for.
func (h *hosts) find(ctx context.Context, field, value string, wanted func(*infrav1.ElementalHost) bool) ([]*infrav1.ElementalHost, error) {
	// First the own writes: what is no longer among them is in the cache. What becomes
	// of one while the cache is asked is not: an event may come after the list was made
	// and drop the write.
	owns := h.own.find(field, value)
	var list infrav1.ElementalHostList
	if err := h.client.List(ctx, &list, client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking up host: %w", err)
	}
	var found []*infrav1.ElementalHost
	consider := func(host *infrav1.ElementalHost) {
		if wanted(host) {
			found = append(found, host)
		}
	}
	for i := range list.Items {
		newest := &list.Items[i]
		// By now there may be a write that was not among the first.
		if own := h.own.get(client.ObjectKeyFromObject(newest)); own != nil && newer(own, newest) {
			newest = own
		}
		owns = slices.DeleteFunc(owns, func(own *infrav1.ElementalHost) bool {
			same := own.Name == list.Items[i].Name && own.Namespace == list.Items[i].Namespace
			if same && newer(own, newest) {
				newest = own
			}
			return same
		})
		consider(newest)
	}
	for _, own := range owns {
		consider(own)
	}
	return found, nil
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
