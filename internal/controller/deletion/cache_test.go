package deletion_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// readCache caches the results of reads (objects, lists and errors) by kind and query, until
// the object is written. It is correct only if all writes to the namespace go through it. It
// saves the requests of reconcilers that find nothing to do.
type readCache map[reflect.Type]map[string]result

type result struct {
	object runtime.Object
	err    error
}

// newCachingClient returns a client that reads through a readCache and writes to the API
// server. Only one goroutine may use it.
func newCachingClient(live client.WithWatch) client.WithWatch {
	m := readCache{}
	return interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return m.read(reflect.TypeOf(o), get(key), o, func() error { return w.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := client.ListOptions{}
			o.ApplyOptions(opts)
			query := fmt.Sprintf("list %s %v %v", o.Namespace, o.LabelSelector, o.FieldSelector)
			return m.read(kindOf(list), query, list, func() error { return w.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return m.written(o, w.Create(ctx, o, opts...))
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			defer m.forget(o)
			return w.Delete(ctx, o, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return m.written(o, w.Update(ctx, o, opts...))
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return m.written(o, w.Patch(ctx, o, p, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return m.written(o, c.SubResource(sub).Patch(ctx, o, p, opts...))
		},
	})
}

// read returns the cached result of a query, or reads and caches it.
func (m readCache) read(kind reflect.Type, query string, into runtime.Object, do func() error) error {
	if cached, ok := m[kind][query]; ok {
		if cached.err == nil {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(cached.object.DeepCopyObject()).Elem())
		}
		return cached.err
	}
	err := do()
	m.store(kind, query, result{into.DeepCopyObject(), err})
	return err
}

// written caches the object that the API server returned for a write, unless the write may
// have removed the object.
func (m readCache) written(o client.Object, err error) error {
	m.forget(o)
	if err == nil && o.GetDeletionTimestamp().IsZero() {
		m.store(reflect.TypeOf(o), get(client.ObjectKeyFromObject(o)), result{o.DeepCopyObject(), nil})
	}
	return err
}

// forget removes the object, and all lists that may contain it, from the cache.
func (m readCache) forget(o client.Object) {
	cached := m[reflect.TypeOf(o)]
	delete(cached, get(client.ObjectKeyFromObject(o)))
	maps.DeleteFunc(cached, func(query string, _ result) bool { return strings.HasPrefix(query, "list ") })
}

func (m readCache) store(kind reflect.Type, query string, read result) {
	if m[kind] == nil {
		m[kind] = map[string]result{}
	}
	m[kind][query] = read
}

func get(key client.ObjectKey) string { return "get " + key.String() }

// kindOf returns the type of the objects in a list.
func kindOf(list client.ObjectList) reflect.Type {
	items, _ := reflect.TypeOf(list).Elem().FieldByName("Items")
	return reflect.PointerTo(items.Type.Elem())
}
