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

// memory holds what was read from the API server until somebody writes it: objects,
// lists and errors, by kind and by what was asked for. It is
// right where all writes of a namespace go through it, and spares the requests of
// reconcilers that find nothing to do.
type memory map[reflect.Type]map[string]answer

type answer struct {
	object runtime.Object
	err    error
}

// remember returns a client for one goroutine that reads from memory and writes to
// the API server.
func remember(live client.WithWatch) client.WithWatch {
	m := memory{}
	return interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return m.once(reflect.TypeOf(o), get(key), o, func() error { return w.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := client.ListOptions{}
			o.ApplyOptions(opts)
			question := fmt.Sprintf("list %s %v %v", o.Namespace, o.LabelSelector, o.FieldSelector)
			return m.once(kindOf(list), question, list, func() error { return w.List(ctx, list, opts...) })
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

// once answers a question from memory, or asks and remembers.
func (m memory) once(kind reflect.Type, question string, into runtime.Object, ask func() error) error {
	if known, ok := m[kind][question]; ok {
		if known.err == nil {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(known.object.DeepCopyObject()).Elem())
		}
		return known.err
	}
	err := ask()
	m.remember(kind, question, answer{into.DeepCopyObject(), err})
	return err
}

// written remembers what the API server answered to a write, unless that may have
// been the object's last.
func (m memory) written(o client.Object, err error) error {
	m.forget(o)
	if err == nil && o.GetDeletionTimestamp().IsZero() {
		m.remember(reflect.TypeOf(o), get(client.ObjectKeyFromObject(o)), answer{o.DeepCopyObject(), nil})
	}
	return err
}

// forget drops what is known of an object, and lists that it may be in.
func (m memory) forget(o client.Object) {
	known := m[reflect.TypeOf(o)]
	delete(known, get(client.ObjectKeyFromObject(o)))
	maps.DeleteFunc(known, func(question string, _ answer) bool { return strings.HasPrefix(question, "list ") })
}

func (m memory) remember(kind reflect.Type, question string, is answer) {
	if m[kind] == nil {
		m[kind] = map[string]answer{}
	}
	m[kind][question] = is
}

func get(key client.ObjectKey) string { return "get " + key.String() }

// kindOf is the type of a list's objects.
func kindOf(list client.ObjectList) reflect.Type {
	items, _ := reflect.TypeOf(list).Elem().FieldByName("Items")
	return reflect.PointerTo(items.Type.Elem())
}
