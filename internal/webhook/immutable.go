package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cluster-api/util/topology"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// immutable denies an update that changes the template's spec, except for dry runs of
// Cluster API's topology controller.
func immutable(ctx context.Context, kind string, template client.Object, same bool) error {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("reading the admission request: %w", err))
	}
	if same || !template.GetDeletionTimestamp().IsZero() || topology.IsDryRunRequest(req, template) {
		return nil
	}
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(kind).GroupKind(), template.GetName(), field.ErrorList{
		field.Forbidden(field.NewPath("spec"), "a template is immutable; create another and refer to that from what uses this one"),
	})
}
