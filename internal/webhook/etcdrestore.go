package webhook

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
)

// The match conditions of this webhook are in config/webhook, as for ElementalHosts.
//
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementaletcdrestore,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementaletcdrestores,versions=v1beta2,name=rights.elementaletcdrestore.infrastructure.cluster.x-k8s.io,sideEffects=NoneOnDryRun,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=elementaletcdrestores,verbs=restore

// restoreValidator denies a confirmation by users who may not restore, and records all others.
type restoreValidator struct {
	reviews  Reviewer
	requests RequestLog
}

var _ admission.Validator[*infrav1.ElementalEtcdRestore] = restoreValidator{}

func (v restoreValidator) ValidateCreate(ctx context.Context, restore *infrav1.ElementalEtcdRestore) (admission.Warnings, error) {
	return nil, v.validate(ctx, &infrav1.ElementalEtcdRestore{}, restore)
}

func (v restoreValidator) ValidateUpdate(ctx context.Context, oldRestore, newRestore *infrav1.ElementalEtcdRestore) (admission.Warnings, error) {
	return nil, v.validate(ctx, oldRestore, newRestore)
}

func (restoreValidator) ValidateDelete(context.Context, *infrav1.ElementalEtcdRestore) (admission.Warnings, error) {
	return nil, nil
}

func (v restoreValidator) validate(ctx context.Context, before, after *infrav1.ElementalEtcdRestore) error {
	if err := requireVerbs(ctx, v.reviews, restoreResource, after, rights.OfRestore(before.Spec, after.Spec)); err != nil {
		return err
	}
	return recordWith(ctx, v.requests.RecordRestore, before, after)
}
