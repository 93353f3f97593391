package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
)

const (
	// updateAttempts bounds retries after conflicts; the only other writer of a
	// host's status is controller/host.
	updateAttempts = 8
	// ownWriteLifetime bounds how long an own write is preferred to the cache. It
	// is seen within milliseconds; but if the host was deleted at once, nothing
	// will ever be seen of it.
	ownWriteLifetime = 30 * time.Second
)

// errGone tells that a host was deleted.
var errGone = errors.New("host is gone")

// hosts reads and writes ElementalHosts. Reads come from the cache, except that
// own writes are seen at once: a host polls right after it enrolled, and a
// report must not be compared with a state that an earlier one has replaced.
type hosts struct {
	client   client.Client
	live     client.Reader
	clock    clock.PassiveClock
	schedule *schedule
	recorder events.EventRecorder

	own ownWrites
}

// get returns the newest known state of a host, not to be changed; errGone if
// there is none.
func (h *hosts) get(ctx context.Context, key types.NamespacedName) (*infrav1.ElementalHost, error) {
	// First the own writes: what is no longer among them is in the cache.
	own := h.own.get(key)
	cached, err := h.cached(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case own != nil && (cached == nil || newer(own, cached)):
		return own, nil
	case cached == nil:
		return nil, errGone
	default:
		return cached, nil
	}
}

// cached returns what the cache has of a host, or nil.
func (h *hosts) cached(ctx context.Context, key types.NamespacedName) (*infrav1.ElementalHost, error) {
	host := &infrav1.ElementalHost{}
	err := h.client.Get(ctx, key, host, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, fmt.Errorf("getting host: %w", err)
	}
	return host, nil
}

// remember keeps an own write until the cache has it.
func (h *hosts) remember(host *infrav1.ElementalHost) {
	if !h.own.add(host) {
		return
	}
	key, version := client.ObjectKeyFromObject(host), host.ResourceVersion // rather than the host, which would be kept that long
	h.schedule.at(h.clock.Now().Add(ownWriteLifetime), func() {
		h.own.drop(key, func(own *infrav1.ElementalHost) bool { return own.ResourceVersion == version })
	})
}

// seen takes note of what the cache has.
func (h *hosts) seen(host *infrav1.ElementalHost, deleted bool) {
	h.own.drop(client.ObjectKeyFromObject(host), func(own *infrav1.ElementalHost) bool { return deleted || !newer(own, host) })
}

// update changes facts in a host's status, derives the conditions and writes
// both at once, or nothing if nothing changed. It returns when the write is
// durable. change may be called several times, each time with a newer state; its
// error ends the update.
func (h *hosts) update(ctx context.Context, key types.NamespacedName, change func(*infrav1.ElementalHost) error) (*infrav1.ElementalHost, error) {
	before, err := h.get(ctx, key)
	for range updateAttempts {
		if err != nil {
			return nil, err
		}
		after := before.DeepCopy()
		if err := change(after); err != nil {
			return nil, err
		}
		if equality.Semantic.DeepEqual(before.Status, after.Status) {
			// Conditions that lag behind the spec are controller/host's to write.
			return before, nil
		}
		hoststatus.Update(after, metav1.NewTime(h.clock.Now()))
		changed := after.DeepCopy()
		err = h.client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			h.remember(after)
			h.tell(before, changed)
			return after, nil
		}
		if apierrors.IsConflict(err) {
			before, err = h.read(ctx, key)
			continue
		}
		if apierrors.IsNotFound(err) {
			return nil, errGone
		}
		return nil, fmt.Errorf("writing host status: %w", err)
	}
	return nil, errBusy(time.Second)
}

// updateSpec changes a host's spec or metadata in one write, or none if nothing
// changed. It returns when that is durable. change may be called several times,
// each time with a newer state; its error ends the update.
func (h *hosts) updateSpec(ctx context.Context, key types.NamespacedName, change func(*infrav1.ElementalHost) error) (*infrav1.ElementalHost, error) {
	before, err := h.get(ctx, key)
	for range updateAttempts {
		if err != nil {
			return nil, err
		}
		after := before.DeepCopy()
		if err := change(after); err != nil {
			return nil, err
		}
		if equality.Semantic.DeepEqual(before, after) {
			return before, nil
		}
		err = h.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			h.remember(after)
			return after, nil
		}
		if apierrors.IsConflict(err) {
			before, err = h.read(ctx, key)
			continue
		}
		if apierrors.IsNotFound(err) {
			return nil, errGone
		}
		return nil, fmt.Errorf("writing host: %w", err)
	}
	return nil, errBusy(time.Second)
}

// read reads past the cache.
func (h *hosts) read(ctx context.Context, key types.NamespacedName) (*infrav1.ElementalHost, error) {
	host := &infrav1.ElementalHost{}
	err := h.live.Get(ctx, key, host)
	if apierrors.IsNotFound(err) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("reading host: %w", err)
	}
	return host, nil
}

// tell records Events of what changed. A host's first status is told by the
// host's existence.
func (h *hosts) tell(before, after *infrav1.ElementalHost) {
	if before.Status.Connection == nil && before.Status.Inventory == nil {
		return
	}
	for _, e := range hoststatus.Events(before, after) {
		h.recorder.Eventf(after, nil, e.Type, e.Reason, "Report", "%s", e.Message)
	}
}

// newer tells whether a is a later state than b, or b is a different object of
// the same name that a can't be compared with.
func newer(a, b *infrav1.ElementalHost) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
