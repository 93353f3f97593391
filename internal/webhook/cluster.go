package webhook

import (
	"context"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalcluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalclusters,versions=v1beta2,name=validation.elementalcluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalclustertemplates,versions=v1beta2,name=validation.elementalclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// clusterValidator denies recipients of snapshots whose checksum is wrong, which a schema can't
// compute: nobody could read what is encrypted for a mistyped one.
type clusterValidator struct{}

var _ admission.Validator[*infrav1.ElementalCluster] = clusterValidator{}

func (clusterValidator) ValidateCreate(_ context.Context, c *infrav1.ElementalCluster) (admission.Warnings, error) {
	return nil, validateRecipients("ElementalCluster", c.Name, field.NewPath("spec"), c.Spec.EtcdSnapshots)
}

// ValidateUpdate checks no object that is being deleted, so that its finalizer can go.
func (v clusterValidator) ValidateUpdate(ctx context.Context, _, c *infrav1.ElementalCluster) (admission.Warnings, error) {
	if !c.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return v.ValidateCreate(ctx, c)
}

func (clusterValidator) ValidateDelete(context.Context, *infrav1.ElementalCluster) (admission.Warnings, error) {
	return nil, nil
}

// clusterTemplateValidator is clusterValidator for templates.
type clusterTemplateValidator struct{}

var _ admission.Validator[*infrav1.ElementalClusterTemplate] = clusterTemplateValidator{}

func (clusterTemplateValidator) ValidateCreate(_ context.Context, t *infrav1.ElementalClusterTemplate) (admission.Warnings, error) {
	spec := t.Spec.Template.Spec
	if spec == nil {
		return nil, nil
	}
	return nil, validateRecipients("ElementalClusterTemplate", t.Name, field.NewPath("spec", "template", "spec"), spec.EtcdSnapshots)
}

func (v clusterTemplateValidator) ValidateUpdate(ctx context.Context, _, t *infrav1.ElementalClusterTemplate) (admission.Warnings, error) {
	if !t.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return v.ValidateCreate(ctx, t)
}

func (clusterTemplateValidator) ValidateDelete(context.Context, *infrav1.ElementalClusterTemplate) (admission.Warnings, error) {
	return nil, nil
}

func validateRecipients(kind, name string, path *field.Path, policy *infrav1.EtcdSnapshots) error {
	if policy == nil {
		return nil
	}
	var wrong field.ErrorList
	for i, recipient := range policy.Recipients {
		if _, err := age.ParseX25519Recipient(recipient); err != nil {
			wrong = append(wrong, field.Invalid(path.Child("etcdSnapshots", "recipients").Index(i), recipient,
				"is no public key of age: compare it with the output of age-keygen"))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(kind).GroupKind(), name, wrong)
}
