package objects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object is a pointer to an API object.
type object[T any] interface {
	*T
	client.Object
}

// Get reads the named object into o. It returns nil if the object does not exist or name is
// blank.
func Get[T any, O object[T]](ctx context.Context, c client.Reader, namespace, name string, o O) (O, error) {
	if name == "" {
		return nil, nil
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return o, nil
}
