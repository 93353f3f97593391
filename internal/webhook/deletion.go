package webhook

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// config/webhook/match_conditions_patch.yaml says whose requests are sent.
// +kubebuilder:webhook:verbs=delete,path=/validate-cluster-x-k8s-io-v1beta2-machine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=machines,versions=v1beta2,name=deletion.machine.infrastructure.cluster.x-k8s.io,sideEffects=NoneOnDryRun,admissionReviewVersions=v1

// Deletions knows Machines of Cluster API that a controller must not delete.
type Deletions interface {
	// RefuseDeletion says why the Machine must not be deleted; blank if it may.
	RefuseDeletion(ctx context.Context, machine *clusterv1.Machine) (string, error)
}

// deletionValidator denies deletions of Machines that deletions refuses. The Event is for people
// who look at a rollout that stands still: not every controller of Cluster API shows why.
type deletionValidator struct {
	deletions Deletions
	recorder  events.EventRecorder
}

var _ admission.Validator[*clusterv1.Machine] = deletionValidator{}

func (deletionValidator) ValidateCreate(context.Context, *clusterv1.Machine) (admission.Warnings, error) {
	return nil, nil
}

func (deletionValidator) ValidateUpdate(context.Context, *clusterv1.Machine, *clusterv1.Machine) (admission.Warnings, error) {
	return nil, nil
}

func (v deletionValidator) ValidateDelete(ctx context.Context, machine *clusterv1.Machine) (admission.Warnings, error) {
	if v.deletions == nil {
		return nil, nil
	}
	refusal, err := v.deletions.RefuseDeletion(ctx, machine)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("finding out whether the Machine would be replaced: %w", err))
	}
	if refusal == "" {
		return nil, nil
	}
	if request, err := admission.RequestFromContext(ctx); err == nil && !ptr.Deref(request.DryRun, false) {
		v.recorder.Eventf(machine, nil, corev1.EventTypeWarning, infrav1.ReplacementRefusedReason, "Delete", "%s", refusal)
	}
	return nil, apierrors.NewForbidden(clusterv1.GroupVersion.WithResource("machines").GroupResource(), machine.Name, errors.New(refusal))
}
