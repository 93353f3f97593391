package webhook

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalmachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalmachines,versions=v1beta2,name=validation.elementalmachine.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// Surges knows machines that must not be created, because the one that they are to replace is
// changed in place.
type Surges interface {
	// RefuseSurge says why the machine must not be created; blank if it may.
	RefuseSurge(ctx context.Context, machine *infrav1.ElementalMachine) (string, error)
}

// machineValidator denies invalid expressions, machines that surges refuses, and changes that their
// user lacks a verb for.
type machineValidator struct {
	reviews   Reviewer
	selectors *selector.Compiler
	surges    Surges
}

var _ admission.Validator[*infrav1.ElementalMachine] = machineValidator{}

func (v machineValidator) ValidateCreate(ctx context.Context, machine *infrav1.ElementalMachine) (admission.Warnings, error) {
	if err := requireVerbs(ctx, v.reviews, machineResource, machine, rights.OfMachine(infrav1.ElementalMachineSpec{}, machine.Spec)); err != nil {
		return nil, err
	}
	if err := v.validate(machine); err != nil || v.surges == nil {
		return nil, err
	}
	refusal, err := v.surges.RefuseSurge(ctx, machine)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("looking for a machine that is changed in place: %w", err))
	}
	if refusal != "" {
		return nil, apierrors.NewForbidden(infrav1.GroupVersion.WithResource("elementalmachines").GroupResource(), machine.Name, errors.New(refusal))
	}
	return nil, nil
}

// ValidateUpdate checks only a changed expression. If a newer version of the provider
// denies an existing expression, the object can still be changed.
func (v machineValidator) ValidateUpdate(ctx context.Context, oldMachine, newMachine *infrav1.ElementalMachine) (admission.Warnings, error) {
	if err := requireVerbs(ctx, v.reviews, machineResource, newMachine, rights.OfMachine(oldMachine.Spec, newMachine.Spec)); err != nil {
		return nil, err
	}
	if !newMachine.DeletionTimestamp.IsZero() ||
		expression(oldMachine.Spec.HostSelector) == expression(newMachine.Spec.HostSelector) {
		return nil, nil
	}
	return nil, v.validate(newMachine)
}

func (machineValidator) ValidateDelete(context.Context, *infrav1.ElementalMachine) (admission.Warnings, error) {
	return nil, nil
}

func (v machineValidator) validate(machine *infrav1.ElementalMachine) error {
	return validateSelector(v.selectors, "ElementalMachine", machine.Name, field.NewPath("spec"), machine.Spec.HostSelector)
}

// validateSelector returns an error with line and column if the expression of the host
// selector at path.hostSelector is invalid.
func validateSelector(selectors *selector.Compiler, kind, name string, path *field.Path, s *infrav1.HostSelector) error {
	text := expression(s)
	if text == "" {
		return nil
	}
	err := selectors.Check(text)
	if err == nil {
		return nil
	}
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(kind).GroupKind(), name, field.ErrorList{
		field.Invalid(path.Child("hostSelector", "expression"), text, err.Error()),
	})
}

func expression(s *infrav1.HostSelector) string {
	if s == nil {
		return ""
	}
	return s.Expression
}
