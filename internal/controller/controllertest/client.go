package controllertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// ErrInjected is the error of an injected failure.
var ErrInjected = errors.New("injected failure")

// Moment is when an injected failure happens, relative to the write.
type Moment string

// The moments of injected failures.
const (
	// BeforeWrite: the write does not reach the API server.
	BeforeWrite Moment = "before the write"
	// AfterWrite: the write succeeds, but its response is lost.
	AfterWrite Moment = "after the write"
)

// Write is one write that reached the client.
type Write struct {
	Verb, Kind, Subresource, Name string
}

func (w Write) String() string {
	if w.Subresource != "" {
		return fmt.Sprintf("%s %s/%s %s", w.Verb, w.Kind, w.Subresource, w.Name)
	}
	return fmt.Sprintf("%s %s %s", w.Verb, w.Kind, w.Name)
}

// Client reads from the API server, CRDs only once, and writes to it. It records writes and injects
// failures. Several goroutines may use it.
type Client struct {
	client.Client

	scheme  *runtime.Scheme
	indexes indexes

	mu     sync.Mutex
	crds   map[string]*metav1.PartialObjectMetadata
	writes []Write
	failAt int
	moment Moment
}

// NewClient returns a client with the indexes that register adds.
func NewClient(tb testing.TB, env *envtest.Environment, register ...func(context.Context, client.FieldIndexer) error) *Client {
	tb.Helper()
	live, err := client.NewWithWatch(env.Config, env.ClientOptions())
	if err != nil {
		tb.Fatalf("making a client: %v", err)
	}
	return Wrap(tb, live, register...)
}

// Wrap returns a Client that reads and writes through live, with the indexes that register
// adds.
func Wrap(tb testing.TB, live client.WithWatch, register ...func(context.Context, client.FieldIndexer) error) *Client {
	tb.Helper()
	c := &Client{scheme: live.Scheme(), indexes: indexes{}, crds: map[string]*metav1.PartialObjectMetadata{}}
	for _, add := range register {
		if err := add(tb.Context(), c.indexes); err != nil {
			tb.Fatalf("adding indexes: %v", err)
		}
	}
	c.Client = interceptor.NewClient(live, interceptor.Funcs{
		Get:  c.get,
		List: c.list,
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return c.write("create", "", o, func() error { return w.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.write("delete", "", o, func() error { return w.Delete(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return c.write("update", "", o, func() error { return w.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.write("patch", "", o, func() error { return w.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return c.write("update", sub, o, func() error { return w.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return c.write("patch", sub, o, func() error { return w.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	return c
}

// Writes returns the writes since the last call of Forget.
func (c *Client) Writes() []Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

// Forget empties Writes, and cancels a failure that has not happened yet.
func (c *Client) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes, c.failAt = nil, 0
}

// FailWrite makes the nth write from now fail, counted from 1. It empties Writes.
func (c *Client) FailWrite(n int, moment Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes, c.failAt, c.moment = nil, n, moment
}

func (c *Client) write(verb, subresource string, o client.Object, do func() error) error {
	gvk, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.writes = append(c.writes, Write{Verb: verb, Kind: gvk.Kind, Subresource: subresource, Name: o.GetName()})
	fails := len(c.writes) == c.failAt
	moment := c.moment
	c.mu.Unlock()
	if fails && moment == BeforeWrite {
		return ErrInjected
	}
	if err := do(); err != nil {
		return err
	}
	if fails {
		return ErrInjected
	}
	return nil
}

// get reads the metadata of each CRD once. A manager has it in its cache as well, and the API server would decode the
// whole schema for every read.
func (c *Client) get(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	crd, ok := o.(*metav1.PartialObjectMetadata)
	if !ok || crd.Kind != "CustomResourceDefinition" {
		return w.Get(ctx, key, o, opts...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, found := c.crds[key.Name]; found {
		known.DeepCopyInto(crd)
		return nil
	}
	if err := w.Get(ctx, key, crd, opts...); err != nil {
		return err
	}
	c.crds[key.Name] = crd.DeepCopy()
	return nil
}

// list evaluates the indexes that a cache would have.
func (c *Client) list(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.FieldSelector == nil {
		return w.List(ctx, list, opts...)
	}
	requirements := o.FieldSelector.Requirements()
	o.FieldSelector = nil
	if err := w.List(ctx, list, &o); err != nil {
		return err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var found []runtime.Object
	for _, item := range objects {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is not a client.Object", item)
		}
		matches := true
		for _, r := range requirements {
			values, ok := c.indexes[indexKey{reflect.TypeOf(object), r.Field}]
			if !ok {
				return fmt.Errorf("index %s of %T is not registered", r.Field, object)
			}
			matches = matches && slices.Contains(values(object), r.Value)
		}
		if matches {
			found = append(found, item)
		}
	}
	return meta.SetList(list, found)
}

type indexKey struct {
	kind  reflect.Type
	field string
}

type indexes map[indexKey]client.IndexerFunc

// IndexField implements client.FieldIndexer.
func (i indexes) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	i[indexKey{reflect.TypeOf(o), field}] = values
	return nil
}
