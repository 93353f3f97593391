package embedded

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/manifests"
)

// errSeveral is the error of Replace for several managers.
var errSeveral = errors.New("only a single manager can be replaced")

// Replace replaces this provider by that of another checkout, as an upgrade or a downgrade does: kinds, roles and
// webhooks, then the manager, which is killed. Kinds that the other checkout does not have stay. It returns when the
// new manager is ready.
func (c *Cluster) Replace(ctx context.Context, checkout string) error {
	if len(c.managers) != 1 {
		return errSeveral
	}
	p := c.providers[len(c.providers)-1]
	program, err := c.buildManager(ctx, checkout)
	if err != nil {
		return err
	}
	components, err := c.sources.render(ctx, filepath.Join(checkout, "config", "default"))
	if err != nil {
		return err
	}
	other, err := manifests.Read(components, manifests.Webhook{Port: p.instances[0].webhook, CABundle: c.trust.cluster.Certificate})
	if err != nil {
		return fmt.Errorf("preparing %s: %w", p.name, err)
	}
	admin, err := client.New(c.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, obj := range append(other.Objects, other.Webhooks...) {
		if err := replace(ctx, admin, obj); err != nil {
			return err
		}
	}
	m := c.managers[0]
	m.Kill()
	m.spec.Path = program
	return m.Start(ctx)
}

// replace creates an object, or replaces the one of its name.
func replace(ctx context.Context, admin client.Client, obj *unstructured.Unstructured) error {
	present := &unstructured.Unstructured{}
	present.SetGroupVersionKind(obj.GroupVersionKind())
	err := admin.Get(ctx, client.ObjectKeyFromObject(obj), present)
	switch {
	case apierrors.IsNotFound(err):
		err = admin.Create(ctx, obj)
	case err == nil:
		obj.SetResourceVersion(present.GetResourceVersion())
		err = admin.Update(ctx, obj)
	}
	if err != nil {
		return fmt.Errorf("replacing %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return nil
}
