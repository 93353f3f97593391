package server_test

import (
	"bytes"
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// handledEvents is the cache of a server. It records which states of objects the server's
// own event handlers have handled, as they run after the cache has changed.
type handledEvents struct {
	inner server.Informers

	mu sync.Mutex
	// watched has the kinds that have a handler.
	watched map[reflect.Type]bool
	states  map[handledObject]string
	// running counts handlers that have not returned.
	running int
}

type handledObject struct {
	kind reflect.Type
	key  client.ObjectKey
}

func newHandledEvents(inner server.Informers) *handledEvents {
	return &handledEvents{inner: inner, watched: map[reflect.Type]bool{}, states: map[handledObject]string{}}
}

// GetInformer implements server.Informers.
func (e *handledEvents) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := e.inner.GetInformer(ctx, o, opts...)
	return &handledInformer{Informer: informer, events: e, kind: reflect.TypeOf(o)}, err
}

// handledInformer records what a handler has handled.
type handledInformer struct {
	cache.Informer

	events *handledEvents
	kind   reflect.Type
}

// AddEventHandler implements cache.Informer.
func (i *handledInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.events.mu.Lock()
	i.events.watched[i.kind] = true
	i.events.mu.Unlock()
	return i.Informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { i.events.handle(o, func() { handler.OnAdd(o, initial) }) },
		UpdateFunc: func(before, after any) { i.events.handle(after, func() { handler.OnUpdate(before, after) }) },
		DeleteFunc: func(o any) { i.events.handle(o, func() { handler.OnDelete(o) }) },
	})
}

func (e *handledEvents) handle(event any, handler func()) {
	e.mu.Lock()
	e.running++
	e.mu.Unlock()
	handler()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if o, ok := event.(client.Object); ok {
		e.states[handledObject{reflect.TypeOf(o), client.ObjectKeyFromObject(o)}] = o.GetResourceVersion()
	}
}

// has reports whether the server has handled this state of the object, or a newer one, or
// handles no events of its kind.
func (e *handledEvents) has(o client.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	kind := reflect.TypeOf(o)
	return !e.watched[kind] || isSince(e.states[handledObject{kind, client.ObjectKeyFromObject(o)}], o.GetResourceVersion())
}

func (e *handledEvents) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running == 0
}

// isSince reports whether a resource version is not older than another one.
func isSince(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order >= 0
}

// cachedSoon waits until the cache has this state of the object, or a newer one, and the
// server has handled it.
func (h *harness) cachedSoon(o client.Object) {
	h.tb.Helper()
	NewWithT(h.tb).Eventually(func() bool {
		got := o.DeepCopyObject().(client.Object)
		err := h.cached.Get(context.Background(), client.ObjectKeyFromObject(o), got)
		return err == nil && isSince(got.GetResourceVersion(), o.GetResourceVersion()) && h.handled.has(o)
	}, eventually, often).Should(BeTrue())
}

// settle waits until the server has nothing to do until something happens or time passes:
// it has made its writes, has handled their events, and has looked at the plans of the polls
// that these have woken.
func (h *harness) settle() {
	h.tb.Helper()
	settled := func() bool {
		if !h.server.Idle() {
			return false
		}
		for _, host := range h.server.OwnWrites() {
			if !h.handled.has(host) {
				return false
			}
		}
		_, busy := polls()
		return h.handled.idle() && h.server.Idle() && busy == 0
	}
	NewWithT(h.tb).Eventually(settled, eventually, often).Should(BeTrue())
}

// polls counts the open polls that wait, and those that have something to do. A goroutine that is
// woken is in another state from then on, even if it has not run yet.
func polls() (waiting, busy int) {
	stacks := make([]byte, 1<<20)
	n := runtime.Stack(stacks, true)
	for ; n == len(stacks); n = runtime.Stack(stacks, true) {
		stacks = make([]byte, 2*len(stacks))
	}
	poll := []byte("/internal/server/api.(*Handler).plan(")
	for one := range bytes.SplitSeq(stacks[:n], []byte("\n\n")) {
		state, frames, _ := bytes.Cut(one, []byte("\n"))
		top, _, _ := bytes.Cut(frames, []byte("\n"))
		switch {
		case !bytes.Contains(frames, poll):
		case bytes.Contains(state, []byte("[select")) && bytes.Contains(top, poll):
			waiting++
		default:
			busy++
		}
	}
	return waiting, busy
}

// stillPolling expects that the polls of n hosts go on once the server has settled: none of them
// is being answered.
func (h *harness) stillPolling(n int) {
	h.tb.Helper()
	h.settle()
	g := NewWithT(h.tb)
	g.Expect(h.metric("elemental_agent_api_connected_hosts")).To(BeEquivalentTo(n))
	waiting, _ := polls()
	g.Expect(waiting).To(BeNumerically(">=", n), "polls is out of date: it does not see them")
}

// step lets time pass once the server has settled. A server remembers its own writes for 30 s
// only, which is long enough for a real cache, and a timed call that has not been made would
// be late by as much.
func (h *harness) step(d time.Duration) {
	h.tb.Helper()
	h.settle()
	h.clock.Step(d)
}

// settledWrites returns the writes since the last call, once the server has settled.
func (h *harness) settledWrites() []string {
	h.tb.Helper()
	h.settle()
	return h.writes.take()
}
