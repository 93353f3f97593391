package hoststore

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
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/timer"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementalhosts/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// updateAttempts bounds retries after conflicts. The only other writer of a
	// host's status is controller/host.
	updateAttempts = 8
	// ownWriteLifetime bounds how long an own write is preferred to the cache. The
	// cache receives it within milliseconds, but never if the host was deleted at
	// once.
	ownWriteLifetime = 30 * time.Second
)

// ErrGone is returned for a host that does not exist or was deleted.
var ErrGone = errors.New("host is gone")

// Options of a Store.
type Options struct {
	// Client reads from a cache that has the indexes of package index, and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	Clock     clock.PassiveClock
	// Timers expires own writes.
	Timers *timer.Queue
	// Recorder records Events on ElementalHosts.
	Recorder events.EventRecorder
}

// Store reads and writes ElementalHosts. It is safe for concurrent use. Callers
// must not change the hosts that it returns, except those of ReadLive.
type Store struct {
	client   client.Client
	live     client.Reader
	clock    clock.PassiveClock
	timers   *timer.Queue
	recorder events.EventRecorder
	events   *eventLimiter
	own      ownWrites
}

// New returns a Store.
func New(o Options) *Store {
	return &Store{
		client: o.Client, live: o.APIReader, clock: o.Clock, timers: o.Timers, recorder: o.Recorder,
		events: newEventLimiter(o.Clock), own: newOwnWrites(),
	}
}

// Get returns the newest known state of a host, or ErrGone.
func (s *Store) Get(ctx context.Context, key types.NamespacedName) (*infrav1.ElementalHost, error) {
	// Own writes first: a write that is no longer among them is in the cache.
	own := s.own.get(key)
	cached, err := s.cached(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case own != nil && (cached == nil || newer(own, cached)):
		return own, nil
	case cached == nil:
		return nil, ErrGone
	default:
		return cached, nil
	}
}

// cached returns the host from the cache, or nil.
func (s *Store) cached(ctx context.Context, key types.NamespacedName) (*infrav1.ElementalHost, error) {
	host := &infrav1.ElementalHost{}
	err := s.client.Get(ctx, key, host, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting host: %w", err)
	}
	return host, nil
}

// ReadLive reads a host from the API server, or returns ErrGone.
func (s *Store) ReadLive(ctx context.Context, key types.NamespacedName) (*infrav1.ElementalHost, error) {
	host := &infrav1.ElementalHost{}
	err := s.live.Get(ctx, key, host)
	if apierrors.IsNotFound(err) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("reading host: %w", err)
	}
	return host, nil
}

// Create creates the host and fills in what the API server adds. The API server's
// errors are returned as they are.
func (s *Store) Create(ctx context.Context, host *infrav1.ElementalHost) error {
	if err := s.client.Create(ctx, host); err != nil {
		return err // the caller tells them apart
	}
	s.Remember(host)
	return nil
}

// Remember keeps an own write until the cache has received it. The host must not be changed
// afterwards.
func (s *Store) Remember(host *infrav1.ElementalHost) {
	if !s.own.add(host) {
		return
	}
	// The closure must not refer to the host, which would stay in memory as long.
	key, version := client.ObjectKeyFromObject(host), host.ResourceVersion
	s.timers.At(s.clock.Now().Add(ownWriteLifetime), func() {
		s.own.removeIf(key, func(own *infrav1.ElementalHost) bool { return own.ResourceVersion == version })
	})
}

// ObserveCache drops own writes that the cache has received. It is called for each
// event of the cache.
func (s *Store) ObserveCache(host *infrav1.ElementalHost, deleted bool) {
	s.own.removeIf(client.ObjectKeyFromObject(host), func(own *infrav1.ElementalHost) bool { return deleted || !newer(own, host) })
}

// OwnWrites returns the own writes that are still kept. The cache may have received some of
// them before they were remembered.
func (s *Store) OwnWrites() []*infrav1.ElementalHost { return s.own.all() }

// UpdateStatus lets change modify the facts in a host's status, derives the conditions
// from them and writes both in one request, or nothing if nothing changed. It returns
// when the write is durable. After a conflict, change is called again with the newest
// state; an error of change ends the update.
func (s *Store) UpdateStatus(ctx context.Context, key types.NamespacedName, change func(*infrav1.ElementalHost) error) (*infrav1.ElementalHost, error) {
	before, err := s.Get(ctx, key)
	for range updateAttempts {
		if err != nil {
			return nil, err
		}
		after := before.DeepCopy()
		if err := change(after); err != nil {
			return nil, err
		}
		if equality.Semantic.DeepEqual(before.Status, after.Status) {
			// controller/host writes conditions that follow from the spec alone.
			return before, nil
		}
		hoststatus.Update(after, metav1.NewTime(s.clock.Now()))
		changed := after.DeepCopy()
		err = s.client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			s.Remember(after)
			s.recordEvents(before, changed)
			return after, nil
		}
		if apierrors.IsConflict(err) {
			before, err = s.ReadLive(ctx, key)
			continue
		}
		if apierrors.IsNotFound(err) {
			return nil, ErrGone
		}
		return nil, fmt.Errorf("writing host status: %w", err)
	}
	return nil, problem.Busy(time.Second)
}

// UpdateSpec lets change modify a host's spec or metadata and writes them in one
// request, or nothing if nothing changed. It returns when the write is durable.
// After a conflict, change is called again with the newest state; an error of change
// ends the update.
func (s *Store) UpdateSpec(ctx context.Context, key types.NamespacedName, change func(*infrav1.ElementalHost) error) (*infrav1.ElementalHost, error) {
	before, err := s.Get(ctx, key)
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
		if err = s.PatchSpec(ctx, before, after); err == nil {
			return after, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, err
		}
		before, err = s.ReadLive(ctx, key)
	}
	return nil, problem.Busy(time.Second)
}

// PatchSpec writes the difference of spec and metadata between two states of a host with
// an optimistic lock. It returns a conflict error if before is not the newest state.
func (s *Store) PatchSpec(ctx context.Context, before, after *infrav1.ElementalHost) error {
	err := s.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("writing host: %w", err)
	}
	s.Remember(after)
	return nil
}

// newer reports whether a is a later state than b. It is false if they can't be
// compared.
func newer(a, b *infrav1.ElementalHost) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
