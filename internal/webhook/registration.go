package webhook

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hostname"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1beta2-elementalregistration,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=elementalregistrations,versions=v1beta2,name=validation.elementalregistration.infrastructure.cluster.x-k8s.io,sideEffects=NoneOnDryRun,admissionReviewVersions=v1

// registrationValidator denies invalid name patterns and successors that no host can trust. It records
// who decides what hosts run and follow to.
type registrationValidator struct{ requests RequestLog }

var _ admission.Validator[*infrav1.ElementalRegistration] = registrationValidator{}

func (v registrationValidator) ValidateCreate(ctx context.Context, registration *infrav1.ElementalRegistration) (admission.Warnings, error) {
	if err := invalidRegistration(registration, append(validateNamePattern(registration), validateSuccessor(registration)...)); err != nil {
		return nil, err
	}
	return nil, recordWith(ctx, v.requests.RecordRegistration, &infrav1.ElementalRegistration{}, registration)
}

// ValidateUpdate checks only what changed. If a newer version of the provider denies an existing
// pattern or successor, the object can still be changed.
func (v registrationValidator) ValidateUpdate(ctx context.Context, oldRegistration, newRegistration *infrav1.ElementalRegistration) (admission.Warnings, error) {
	if !newRegistration.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	var found field.ErrorList
	if oldRegistration.Spec.HostTemplate.NamePattern != newRegistration.Spec.HostTemplate.NamePattern {
		found = append(found, validateNamePattern(newRegistration)...)
	}
	if !reflect.DeepEqual(oldRegistration.Spec.Successor, newRegistration.Spec.Successor) {
		found = append(found, validateSuccessor(newRegistration)...)
	}
	if err := invalidRegistration(newRegistration, found); err != nil {
		return nil, err
	}
	return nil, recordWith(ctx, v.requests.RecordRegistration, oldRegistration, newRegistration)
}

func (registrationValidator) ValidateDelete(context.Context, *infrav1.ElementalRegistration) (admission.Warnings, error) {
	return nil, nil
}

func invalidRegistration(registration *infrav1.ElementalRegistration, found field.ErrorList) error {
	if len(found) == 0 {
		return nil
	}
	gk := infrav1.GroupVersion.WithKind("ElementalRegistration").GroupKind()
	return apierrors.NewInvalid(gk, registration.Name, found)
}

func validateNamePattern(registration *infrav1.ElementalRegistration) field.ErrorList {
	pattern := registration.Spec.HostTemplate.NamePattern
	if err := hostname.Validate(pattern); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "hostTemplate", "namePattern"), pattern, err.Error())}
	}
	return nil
}

// validateSuccessor denies a trust bundle that agents would refuse.
func validateSuccessor(registration *infrav1.ElementalRegistration) field.ErrorList {
	successor := registration.Spec.Successor
	if successor == nil {
		return nil
	}
	if err := checkBundle(successor.TrustBundle); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "successor", "trustBundle"), field.OmitValueType{}, err.Error())}
	}
	return nil
}

// checkBundle checks that a trust bundle has CA certificates in PEM and nothing else.
func checkBundle(bundle string) error {
	rest, count := []byte(bundle), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("it must have certificates only, not %q", block.Type)
		}
		count++
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("parsing certificate %d: %w", count, err)
		}
		if !certificate.IsCA {
			return fmt.Errorf("certificate %d, %s, is not that of a CA", count, certificate.Subject)
		}
	}
	if count == 0 || strings.TrimSpace(string(rest)) != "" {
		return errors.New("it must have certificates in PEM and nothing else; see status.endpoint.caBundle of the successor's registrations")
	}
	return nil
}
