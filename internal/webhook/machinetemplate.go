package webhook

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalmachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalmachinetemplates,versions=v1beta2,name=validation.elementalmachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// machineTemplateValidator makes the spec of templates immutable: Cluster API compares
// machines with their template, so old machines would seem to match a changed template.
// It also denies invalid expressions, before a machine is created from the template, and templates
// that their user lacks a verb for.
type machineTemplateValidator struct {
	reviews   Reviewer
	selectors *selector.Compiler
}

var _ admission.Validator[*infrav1.ElementalMachineTemplate] = machineTemplateValidator{}

func (v machineTemplateValidator) ValidateCreate(ctx context.Context, template *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	if err := v.requireVerbs(ctx, &infrav1.ElementalMachineTemplate{}, template); err != nil {
		return nil, err
	}
	return nil, v.validate(template)
}

// ValidateUpdate denies changes of spec, except in dry runs of Cluster API.
func (v machineTemplateValidator) ValidateUpdate(ctx context.Context, oldTemplate, newTemplate *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	if err := v.requireVerbs(ctx, oldTemplate, newTemplate); err != nil {
		return nil, err
	}
	if newTemplate.DeletionTimestamp.IsZero() && expressionOf(oldTemplate) != expressionOf(newTemplate) {
		if err := v.validate(newTemplate); err != nil {
			return nil, err
		}
	}
	return nil, immutable(ctx, "ElementalMachineTemplate", newTemplate, equality.Semantic.DeepEqual(oldTemplate.Spec, newTemplate.Spec))
}

func (machineTemplateValidator) ValidateDelete(context.Context, *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	return nil, nil
}

// requireVerbs also applies to updates: templates that are being deleted can be changed.
func (v machineTemplateValidator) requireVerbs(ctx context.Context, before, after *infrav1.ElementalMachineTemplate) error {
	return requireVerbs(ctx, v.reviews, templateResource, after, rights.OfMachine(specOf(before), specOf(after)))
}

func specOf(template *infrav1.ElementalMachineTemplate) infrav1.ElementalMachineSpec {
	return ptr.Deref(template.Spec.Template.Spec, infrav1.ElementalMachineSpec{})
}

func (v machineTemplateValidator) validate(template *infrav1.ElementalMachineTemplate) error {
	if template.Spec.Template.Spec == nil {
		return nil
	}
	return validateSelector(v.selectors, "ElementalMachineTemplate", template.Name,
		field.NewPath("spec", "template", "spec"), template.Spec.Template.Spec.HostSelector)
}

func expressionOf(template *infrav1.ElementalMachineTemplate) string {
	if template.Spec.Template.Spec == nil {
		return ""
	}
	return expression(template.Spec.Template.Spec.HostSelector)
}
