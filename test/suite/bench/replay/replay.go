// Package replay repeats the writes of the manager with copies of its objects, as fast as the API server takes them.
package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

// atOnce is the number of concurrent writes of Create.
const atOnce = 32

// Template creates copies of a fleet's objects in an unmanaged namespace and writes them as often as the manager wrote
// the originals. The time that the API server needs for it is the minimum for the manager. It is safe for concurrent use.
type Template struct {
	admin client.Client
	// to is the namespace of the copies.
	to      string
	host    *infrav1.ElementalHost
	machine *infrav1.ElementalMachine
	event   *eventsv1.Event
}

// New copies objects in the namespace from: a host, preferably with a machine, and that machine.
func New(ctx context.Context, admin client.Client, from, to string) (*Template, error) {
	hosts, machines := &infrav1.ElementalHostList{}, &infrav1.ElementalMachineList{}
	for _, list := range []client.ObjectList{hosts, machines} {
		if err := admin.List(ctx, list, client.InNamespace(from), client.Limit(1)); err != nil {
			return nil, fmt.Errorf("reading a model for bare objects: %w", err)
		}
	}
	if len(hosts.Items) == 0 {
		return nil, fmt.Errorf("reading a model for bare objects: there is no host")
	}
	t := &Template{admin: admin, to: to, host: &hosts.Items[0], machine: &infrav1.ElementalMachine{}}
	if len(machines.Items) > 0 {
		t.machine = &machines.Items[0]
		key := client.ObjectKey{Namespace: from, Name: t.machine.Spec.HostRef.Name}
		if err := admin.Get(ctx, key, t.host); err != nil {
			return nil, fmt.Errorf("reading a model for bare objects: %w", err)
		}
	}
	t.event = &eventsv1.Event{
		EventTime: metav1.NowMicro(), ReportingController: "bench", ReportingInstance: "bench-0", Type: corev1.EventTypeNormal,
		Reason: "Bench", Action: "Bench", Note: "An Event of the length that those of hosts and of their machines have",
	}
	// The Secret must exist before it is written, as the token's Secret does.
	err := admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: to, Name: "token"}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating a bare Secret: %w", err)
	}
	return t, nil
}

// bareMeta returns the metadata of the copy with a number, without owners and finalizers.
func (t *Template) bareMeta(model metav1.ObjectMeta, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: t.to, Name: fmt.Sprintf("bare-%06d", i), Labels: model.Labels, Annotations: model.Annotations,
	}
}

func (t *Template) createHost(ctx context.Context, i int) error {
	return t.admin.Create(ctx, &infrav1.ElementalHost{ObjectMeta: t.bareMeta(t.host.ObjectMeta, i), Spec: t.host.Spec})
}

func (t *Template) createMachine(ctx context.Context, i int) error {
	return t.admin.Create(ctx, &infrav1.ElementalMachine{ObjectMeta: t.bareMeta(t.machine.ObjectMeta, i), Spec: t.machine.Spec})
}

// Create creates the copies that Replay writes, with status.
func (t *Template) Create(ctx context.Context, n int) error {
	return bare.Each(ctx, n, atOnce, func(ctx context.Context, i int) error {
		for _, create := range []func(context.Context, int) error{t.createHost, t.createMachine} {
			if err := create(ctx, i); err != nil {
				return fmt.Errorf("creating a bare object: %w", err)
			}
		}
		for _, resource := range []string{"elementalhosts", "elementalmachines"} {
			if err := t.write(ctx, measure.Write{Verb: "PATCH", Resource: resource, Subresource: "status"}, i, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// Replay returns a function that repeats the share of copy i of n in the counted writes.
func (t *Template) Replay(counted measure.Writes, n int) func(ctx context.Context, i int) error {
	return func(ctx context.Context, i int) error {
		for _, verb := range []string{"POST", "PATCH"} {
			for what, count := range counted {
				if what.Verb != verb {
					continue
				}
				for k := range share(count, n, i) {
					if err := t.write(ctx, what, i, k); err != nil {
						return fmt.Errorf("writing bare (%s): %w", what, err)
					}
				}
			}
		}
		return nil
	}
}

// share returns the share of number i of n in a total. All shares add up to the total.
func share(total, n, i int) int { return total*(i+1)/n - total*i/n }

// write makes one write. Its content differs each time, because an API server doesn't store unchanged objects. Kinds with
// few writes are omitted.
func (t *Template) write(ctx context.Context, what measure.Write, i, k int) error {
	stamp := fmt.Sprintf("%d-%d", i, k)
	name := fmt.Sprintf("bare-%06d", i)
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: t.to, Name: name}}
	machine := &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: t.to, Name: name}}
	switch strings.TrimSuffix(what.Verb+" "+what.Resource+"/"+what.Subresource, "/") {
	case "POST elementalhosts":
		return t.createHost(ctx, i)
	case "PATCH elementalhosts":
		return t.patch(ctx, host, annotated(stamp))
	case "PATCH elementalhosts/status":
		status := t.host.Status.DeepCopy()
		if len(status.Conditions) > 0 {
			status.Conditions[0].Message = stamp
		}
		return t.patchStatus(ctx, host, status)
	case "PATCH elementalmachines":
		return t.patch(ctx, machine, annotated(stamp))
	case "PATCH elementalmachines/status":
		status := t.machine.Status.DeepCopy()
		if len(status.Conditions) > 0 {
			status.Conditions[0].Message = stamp
		}
		return t.patchStatus(ctx, machine, status)
	case "PATCH secrets":
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: t.to, Name: "token"}}
		return t.patch(ctx, secret, annotated(stamp))
	case "POST events":
		event := t.event.DeepCopy()
		event.Namespace, event.GenerateName = t.to, "bare-"
		event.Regarding = corev1.ObjectReference{APIVersion: infrav1.GroupVersion.String(), Kind: "ElementalHost", Namespace: t.to, Name: name}
		return t.admin.Create(ctx, event)
	default:
		return nil
	}
}

// annotated returns a patch of an object's annotations.
func annotated(stamp string) any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]string{"bench": stamp}}}
}

func (t *Template) patch(ctx context.Context, obj client.Object, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return t.admin.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body))
}

func (t *Template) patchStatus(ctx context.Context, obj client.Object, status any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return t.admin.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, body))
}
