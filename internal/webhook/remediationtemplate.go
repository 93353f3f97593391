package webhook

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// +kubebuilder:webhook:verbs=update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalremediationtemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalremediationtemplates,versions=v1beta2,name=validation.elementalremediationtemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// remediationTemplateValidator makes the spec of templates immutable. Cluster API requires
// that of all templates that a ClusterClass can refer to.
type remediationTemplateValidator struct{}

var _ admission.Validator[*infrav1.ElementalRemediationTemplate] = remediationTemplateValidator{}

func (remediationTemplateValidator) ValidateCreate(context.Context, *infrav1.ElementalRemediationTemplate) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate denies changes of spec.
func (remediationTemplateValidator) ValidateUpdate(ctx context.Context, oldTemplate, newTemplate *infrav1.ElementalRemediationTemplate) (admission.Warnings, error) {
	return nil, immutable(ctx, "ElementalRemediationTemplate", newTemplate, equality.Semantic.DeepEqual(oldTemplate.Spec, newTemplate.Spec))
}

func (remediationTemplateValidator) ValidateDelete(context.Context, *infrav1.ElementalRemediationTemplate) (admission.Warnings, error) {
	return nil, nil
}
