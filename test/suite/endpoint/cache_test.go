package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// objectCache has all objects of the kinds that change, as a manager's cache has them.
// Objects in it are never changed.
type objectCache map[reflect.Type]snapshot

// snapshot has all objects of a kind.
type snapshot map[client.ObjectKey]client.Object

// watched returns a list for each kind in an objectCache.
func watched() []client.ObjectList {
	return []client.ObjectList{
		&clusterv1.ClusterList{}, &clusterv1.MachineList{},
		&infrav1.ElementalClusterList{}, &infrav1.ElementalHostList{}, &infrav1.ElementalMachineList{},
	}
}

// all returns the objects of a kind, by name.
func all[T client.Object](v objectCache) []T {
	var out []T
	for _, o := range v[reflect.TypeFor[T]()] {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

// find returns the object with a name, or false.
func find[T client.Object](v objectCache, name string) (T, bool) {
	for key, o := range v[reflect.TypeFor[T]()] {
		if t, ok := o.(T); ok && key.Name == name {
			return t, true
		}
	}
	var none T
	return none, false
}

// read lists the watched kinds in a namespace.
func read(ctx context.Context, c client.Reader, namespace string, at *times) (objectCache, error) {
	v := objectCache{}
	for _, list := range watched() {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing: %w", err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, fmt.Errorf("reading %T: %w", list, err)
		}
		s := snapshot{}
		for _, item := range objects {
			if o, ok := item.(client.Object); ok {
				at.correct(o)
				s[client.ObjectKeyFromObject(o)] = o
			}
		}
		v[itemType(list)] = s
	}
	return v, nil
}

// itemType is the type of a list's items, as pointers.
func itemType(list client.ObjectList) reflect.Type {
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	if !items.IsValid() {
		return nil
	}
	return reflect.PointerTo(items.Type().Elem())
}

// equal reports whether two snapshots have the same objects in the same versions.
func (s snapshot) equal(other snapshot) bool {
	return maps.EqualFunc(s, other, func(a, b client.Object) bool {
		return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
	})
}

// times maps creation and deletion times, which the API server sets by the real clock,
// to the simulation's clock.
type times struct {
	now     func() time.Time
	created map[types.UID]metav1.Time
	deleted map[types.UID]metav1.Time
}

func (t *times) correct(o client.Object) {
	first := func(m map[types.UID]metav1.Time) metav1.Time {
		if _, ok := m[o.GetUID()]; !ok {
			m[o.GetUID()] = metav1.NewTime(t.now().Truncate(time.Second))
		}
		return m[o.GetUID()]
	}
	o.SetCreationTimestamp(first(t.created))
	if o.GetDeletionTimestamp() != nil {
		at := first(t.deleted)
		o.SetDeletionTimestamp(&at)
	}
}

// through returns a client whose objects have the simulation's times. It reads the
// kinds in cached() from there. It calls seen with each written object, and deleted
// before each deletion.
func (t *times) through(live client.WithWatch, cached func() objectCache, seen func(client.Object), deleted func()) client.WithWatch {
	return interceptor.NewClient(live, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if s, ok := cached()[reflect.TypeOf(o)]; ok {
				return s.get(key, o)
			}
			if err := w.Get(ctx, key, o, opts...); err != nil {
				return err // the API server's
			}
			t.correct(o)
			return nil
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if s, ok := cached()[itemType(list)]; ok {
				return s.list(list, opts...)
			}
			if err := w.List(ctx, list, opts...); err != nil {
				return err // the API server's
			}
			return meta.EachListItem(list, func(item runtime.Object) error {
				if o, ok := item.(client.Object); ok {
					t.correct(o)
				}
				return nil
			})
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			deleted()
			return w.Delete(ctx, o, opts...) // the API server's
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return t.wrote(o, seen, w.Patch(ctx, o, p, opts...))
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return t.wrote(o, seen, w.SubResource(sub).Patch(ctx, o, p, opts...))
		},
	})
}

func (t *times) wrote(o client.Object, seen func(client.Object), err error) error {
	if err == nil {
		t.correct(o)
		seen(o)
	}
	return err
}

func (s snapshot) get(key client.ObjectKey, into client.Object) error {
	o, ok := s[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: reflect.TypeOf(into).Elem().Name()}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
	return nil
}

func (s snapshot) list(into client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.FieldSelector != nil {
		return errors.New("field selectors are not supported")
	}
	var found []runtime.Object
	for _, key := range slices.SortedFunc(maps.Keys(s), func(a, b client.ObjectKey) int { return cmp.Compare(a.Name, b.Name) }) {
		if (o.Namespace == "" || o.Namespace == key.Namespace) && (o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(s[key].GetLabels()))) {
			found = append(found, s[key].DeepCopyObject())
		}
	}
	return meta.SetList(into, found) // can't fail for lists of their own items
}
