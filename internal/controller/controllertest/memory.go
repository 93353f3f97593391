package controllertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Memory is an API server in memory with a real cache in front of it. It is for
// benchmarks, where the time of a real API server would hide what they measure, and for tests
// in a bubble of synctest; other tests of behaviour use a real one. A patch of an object that
// is not the newest version is a conflict. Several goroutines may use it.
type Memory struct {
	client.Client

	// Cache is like the cache of a manager. Get and List of Memory read from it.
	Cache cache.Cache

	scheme *runtime.Scheme
	mu     sync.Mutex
	kinds  map[reflect.Type]*kind
	last   uint64
}

// kind holds the objects of one kind and their watchers.
type kind struct {
	objects  map[client.ObjectKey]client.Object
	watchers []chan watch.Event
}

// backlog is the maximum number of events that may wait for a cache.
const backlog = 1 << 15

// NewMemory returns a running Memory with the indexes that register adds. The cache applies
// transform, which may be nil.
func NewMemory(tb testing.TB, scheme *runtime.Scheme, transform toolscache.TransformFunc, register ...func(context.Context, client.FieldIndexer) error) *Memory {
	tb.Helper()
	m := &Memory{scheme: scheme, kinds: map[reflect.Type]*kind{}}
	mapper := meta.NewDefaultRESTMapper(scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.AllKnownTypes() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	var err error
	m.Cache, err = cache.New(&rest.Config{Host: "memory"}, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultTransform: transform,
		NewInformer: func(_ toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(&source{memory: m, kind: reflect.TypeOf(o)}, o, resync, indexers)
		},
	})
	if err != nil {
		tb.Fatalf("making a cache: %v", err)
	}
	for _, add := range register {
		if err := add(tb.Context(), m.Cache); err != nil {
			tb.Fatalf("adding indexes: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- m.Cache.Start(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			tb.Errorf("stopping the cache: %v", err)
		}
	})
	m.Cache.WaitForCacheSync(tb.Context())
	return m
}

// kindOf returns the objects and watchers of a type. The caller holds the lock.
func (m *Memory) kindOf(t reflect.Type) *kind {
	k := m.kinds[t]
	if k == nil {
		k = &kind{objects: map[client.ObjectKey]client.Object{}}
		m.kinds[t] = k
	}
	return k
}

// put stores a copy of the object as a new version, or removes it, and sends the event to
// the watchers. The caller holds the lock.
func (m *Memory) put(o client.Object, eventType watch.EventType) {
	m.last++
	o.SetResourceVersion(strconv.FormatUint(m.last, 10))
	k := m.kindOf(reflect.TypeOf(o))
	stored, _ := o.DeepCopyObject().(client.Object)
	if eventType == watch.Deleted {
		delete(k.objects, client.ObjectKeyFromObject(o))
	} else {
		k.objects[client.ObjectKeyFromObject(o)] = stored
	}
	for _, w := range k.watchers {
		w <- watch.Event{Type: eventType, Object: stored}
	}
}

// Get implements client.Reader.
func (m *Memory) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return m.Cache.Get(ctx, key, o, opts...)
}

// List implements client.Reader.
func (m *Memory) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return m.Cache.List(ctx, list, opts...)
}

// Scheme implements client.Client.
func (m *Memory) Scheme() *runtime.Scheme { return m.scheme }

// GroupVersionKindFor implements client.Client.
func (m *Memory) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, m.scheme)
}

// Create implements client.Writer. Unlike an API server it stores the status too.
func (m *Memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.GetName() == "" {
		o.SetName(o.GetGenerateName() + strconv.FormatUint(m.last+1, 10))
	}
	if _, exists := m.kindOf(reflect.TypeOf(o)).objects[client.ObjectKeyFromObject(o)]; exists {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
	}
	o.SetUID(types.UID("uid-" + strconv.FormatUint(m.last+1, 10)))
	o.SetGeneration(1)
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	m.put(o, watch.Added)
	return nil
}

// Delete implements client.Writer. It ignores finalizers.
func (m *Memory) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(o, watch.Deleted)
	return nil
}

// Patch implements client.Writer.
func (m *Memory) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return m.patch(o, patch, 1)
}

func (m *Memory) patch(o client.Object, patch client.Patch, generations int64) error {
	// Benchmarks measure the work of the client, which makes the patch.
	if _, err := patch.Data(o); err != nil {
		return fmt.Errorf("making the patch: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := m.kindOf(reflect.TypeOf(o)).objects[client.ObjectKeyFromObject(o)]
	switch {
	case stored == nil:
		return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
	case stored.GetResourceVersion() != o.GetResourceVersion():
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("the object was changed"))
	}
	o.SetGeneration(stored.GetGeneration() + generations)
	m.put(o, watch.Modified)
	return nil
}

// Status implements client.Client.
func (m *Memory) Status() client.SubResourceWriter { return statusWriter{memory: m} }

type statusWriter struct {
	client.SubResourceWriter

	memory *Memory
}

// Patch implements client.SubResourceWriter.
func (w statusWriter) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.memory.patch(o, patch, 0)
}

// Live returns a reader past the cache. It supports only Get.
func (m *Memory) Live() client.Reader { return liveReader{memory: m} }

type liveReader struct {
	client.Reader

	memory *Memory
}

// Get implements client.Reader.
func (r liveReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	stored := r.memory.kindOf(reflect.TypeOf(o)).objects[key]
	if stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(stored.DeepCopyObject()).Elem())
	return nil
}

// source is the ListerWatcher through which the cache reads one kind.
type source struct {
	memory *Memory
	kind   reflect.Type
}

// List implements toolscache.ListerWatcher. The cache gets the stored objects themselves,
// so that each object is in memory only once.
func (s *source) List(metav1.ListOptions) (runtime.Object, error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	list := &metav1.List{}
	list.ResourceVersion = strconv.FormatUint(s.memory.last, 10)
	for _, o := range s.memory.kindOf(s.kind).objects {
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
	}
	return list, nil
}

// Watch implements toolscache.ListerWatcher. It does not report deletions between the list
// and the watch, so no object may be deleted before the cache has started.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	since, err := version(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	k := s.memory.kindOf(s.kind)
	events := make(chan watch.Event, backlog)
	for _, o := range k.objects {
		if v, err := version(o.GetResourceVersion()); err == nil && v > since {
			events <- watch.Event{Type: watch.Modified, Object: o}
		}
	}
	k.watchers = append(k.watchers, events)
	return watch.NewProxyWatcher(events), nil
}

func version(resourceVersion string) (uint64, error) {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading a resourceVersion: %w", err)
	}
	return v, nil
}

// IsWatchListSemanticsUnSupported makes client-go list first and then watch.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }
