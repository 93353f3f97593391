package webhook

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// +kubebuilder:webhook:verbs=update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalmachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates,versions=v1beta2,name=validation.elementalmachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// machineTemplateValidator keeps the spec of templates as it is: machines are
// compared with the template they name, so a changed template would claim that
// old machines are what they aren't.
type machineTemplateValidator struct{}

var _ admission.Validator[*infrav1.ElementalMachineTemplate] = machineTemplateValidator{}

func (machineTemplateValidator) ValidateCreate(context.Context, *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate refuses a changed spec.
func (machineTemplateValidator) ValidateUpdate(ctx context.Context, oldTemplate, newTemplate *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	return nil, immutable(ctx, "ElementalMachineTemplate", newTemplate, equality.Semantic.DeepEqual(oldTemplate.Spec, newTemplate.Spec))
}

func (machineTemplateValidator) ValidateDelete(context.Context, *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	return nil, nil
}
