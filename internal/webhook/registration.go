package webhook

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalregistration,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations,versions=v1beta2,name=validation.elementalregistration.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// registrationValidator denies invalid name patterns.
type registrationValidator struct{}

var _ admission.Validator[*infrav1.ElementalRegistration] = registrationValidator{}

func (registrationValidator) ValidateCreate(_ context.Context, registration *infrav1.ElementalRegistration) (admission.Warnings, error) {
	return nil, validateNamePattern(registration)
}

// ValidateUpdate checks only a changed pattern. If a newer version of the provider denies
// an existing pattern, the object can still be changed.
func (registrationValidator) ValidateUpdate(_ context.Context, oldRegistration, newRegistration *infrav1.ElementalRegistration) (admission.Warnings, error) {
	if !newRegistration.DeletionTimestamp.IsZero() ||
		oldRegistration.Spec.HostTemplate.NamePattern == newRegistration.Spec.HostTemplate.NamePattern {
		return nil, nil
	}
	return nil, validateNamePattern(newRegistration)
}

func (registrationValidator) ValidateDelete(context.Context, *infrav1.ElementalRegistration) (admission.Warnings, error) {
	return nil, nil
}

func validateNamePattern(registration *infrav1.ElementalRegistration) error {
	pattern := registration.Spec.HostTemplate.NamePattern
	err := hostname.Validate(pattern)
	if err == nil {
		return nil
	}
	gk := infrav1.GroupVersion.WithKind("ElementalRegistration").GroupKind()
	return apierrors.NewInvalid(gk, registration.Name, field.ErrorList{
		field.Invalid(field.NewPath("spec", "hostTemplate", "namePattern"), pattern, err.Error()),
	})
}
