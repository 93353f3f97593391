package webhook

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalhostgrant,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalhostgrants,versions=v1beta2,name=rights.elementalhostgrant.infrastructure.cluster.x-k8s.io,sideEffects=NoneOnDryRun,admissionReviewVersions=v1

// grantValidator denies grants to the pool itself, and by users who may not decide about hosts of
// the namespace that gets them: bootstrap data of that namespace goes to those machines. It records
// all others.
type grantValidator struct {
	reviews  Reviewer
	requests RequestLog
}

var _ admission.Validator[*infrav1.ElementalHostGrant] = grantValidator{}

func (v grantValidator) ValidateCreate(ctx context.Context, grant *infrav1.ElementalHostGrant) (admission.Warnings, error) {
	return nil, v.validate(ctx, &infrav1.ElementalHostGrant{}, grant)
}

// ValidateUpdate admits what changes no spec, such as the removal of a finalizer.
func (v grantValidator) ValidateUpdate(ctx context.Context, before, after *infrav1.ElementalHostGrant) (admission.Warnings, error) {
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil, nil
	}
	return nil, v.validate(ctx, before, after)
}

func (grantValidator) ValidateDelete(context.Context, *infrav1.ElementalHostGrant) (admission.Warnings, error) {
	return nil, nil
}

func (v grantValidator) validate(ctx context.Context, before, grant *infrav1.ElementalHostGrant) error {
	invalid := func(path *field.Path, value any, why string) error {
		return apierrors.NewInvalid(infrav1.GroupVersion.WithKind("ElementalHostGrant").GroupKind(), grant.Name, field.ErrorList{field.Invalid(path, value, why)})
	}
	if grant.Spec.Namespace == grant.Namespace {
		return invalid(field.NewPath("spec", "namespace"), grant.Spec.Namespace, "the hosts are in this namespace already; name another one")
	}
	if s := grant.Spec.Hosts.Selector; s != nil {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return invalid(field.NewPath("spec", "hosts", "selector"), s, err.Error())
		}
	}
	if err := requireVerbsIn(ctx, v.reviews, grant.Spec.Namespace, hostResource, grant, []rights.Verb{rights.Grant}); err != nil {
		return err
	}
	return recordWith(ctx, v.requests.RecordGrant, before, grant)
}
