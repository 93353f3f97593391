package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cluster-api/util/topology"
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

// ValidateUpdate refuses a changed spec, unless Cluster API's topology
// controller only asks what a change would amount to.
func (machineTemplateValidator) ValidateUpdate(ctx context.Context, oldTemplate, newTemplate *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading the admission request: %w", err))
	}
	if !newTemplate.DeletionTimestamp.IsZero() || topology.IsDryRunRequest(req, newTemplate) ||
		equality.Semantic.DeepEqual(oldTemplate.Spec, newTemplate.Spec) {
		return nil, nil
	}
	gk := infrav1.GroupVersion.WithKind("ElementalMachineTemplate").GroupKind()
	return nil, apierrors.NewInvalid(gk, newTemplate.Name, field.ErrorList{field.Forbidden(field.NewPath("spec"),
		"a template is immutable; create another and refer to that from the control plane or MachineDeployment")})
}

func (machineTemplateValidator) ValidateDelete(context.Context, *infrav1.ElementalMachineTemplate) (admission.Warnings, error) {
	return nil, nil
}
