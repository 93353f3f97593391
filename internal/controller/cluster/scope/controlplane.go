package scope

import (
	"context"
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/release"
)

// ControlPlane is what the controller reads of a cluster's control plane.
type ControlPlane struct {
	// Constraints of the control plane's machines, from their machine template.
	Constraints placement.Constraints
	// Replicas is the number of machines that the control plane is to have.
	Replicas int32
	// Surges: a rollout creates a machine before it deletes one.
	Surges bool
}

// ControlPlaneConstraints returns the placement constraints of the control plane's
// machines. While they are unknown, waiting is not nil and says what is missing.
func (r Reader) ControlPlaneConstraints(ctx context.Context, s *Scope) (_ placement.Constraints, waiting *Endpoint, _ error) {
	controlPlane, waiting, err := r.ControlPlane(ctx, s)
	return controlPlane.Constraints, waiting, err
}

// ControlPlane reads the control plane and its machine template. While one of them does
// not exist, waiting is not nil and says what is missing.
func (r Reader) ControlPlane(ctx context.Context, s *Scope) (_ ControlPlane, waiting *Endpoint, _ error) {
	missing := func(reason, format string, args ...any) (ControlPlane, *Endpoint, error) {
		return ControlPlane{}, &Endpoint{Reason: reason, Message: fmt.Sprintf(format, args...)}, nil
	}
	ref := s.Cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() {
		return missing(infrav1.WaitingForControlPlaneRefReason,
			"The Cluster has no spec.controlPlaneRef; set it, or set spec.controlPlaneEndpoint.host here")
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := r.Client.Get(ctx, client.ObjectKey{Name: contract.CalculateCRDName(ref.APIGroup, ref.Kind)}, crd)
	if apierrors.IsNotFound(err) {
		return missing(infrav1.TemplateNotFoundReason, "The kind %s of group %s is not installed here", ref.Kind, ref.APIGroup)
	}
	if err != nil {
		return ControlPlane{}, nil, fmt.Errorf("looking for kind %s: %w", ref.Kind, err)
	}
	controlPlane, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, s.Cluster.Namespace)
	if apierrors.IsNotFound(err) {
		return missing(infrav1.TemplateNotFoundReason, "%s %s does not exist yet", ref.Kind, ref.Name)
	}
	if err != nil {
		return ControlPlane{}, nil, fmt.Errorf("getting control plane: %w", err)
	}
	kind, name := machineTemplateRef(controlPlane)
	if kind != "ElementalMachineTemplate" {
		return missing(infrav1.TemplateNotFoundReason,
			"%s %s names no ElementalMachineTemplate (it names kind %q); set spec.controlPlaneEndpoint.host here", ref.Kind, ref.Name, kind)
	}
	template := &infrav1.ElementalMachineTemplate{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.Cluster.Namespace, Name: name}, template)
	if apierrors.IsNotFound(err) {
		return missing(infrav1.TemplateNotFoundReason, "ElementalMachineTemplate %s does not exist yet", name)
	}
	if err != nil {
		return ControlPlane{}, nil, fmt.Errorf("getting ElementalMachineTemplate: %w", err)
	}
	constraints := placement.Constraints{ReservedFor: s.Cluster.Name, Adoption: placement.NewAdoption(s.Cluster, s.InfraCluster, true)}
	if spec := template.Spec.Template.Spec; spec != nil {
		constraints.Selector, constraints.OSImage = r.Selectors.Compile(ctx, spec.HostSelector), spec.OSImage != ""
	}
	if constraints.Preflight, err = r.preflight(ctx, controlPlane, template); err != nil {
		return ControlPlane{}, nil, err
	}
	return ControlPlane{Constraints: constraints, Replicas: replicas(controlPlane), Surges: surges(controlPlane)}, nil, nil
}

// preflight returns what kubeadm needs of the hosts; nil for other control plane providers, or
// without a version.
func (r Reader) preflight(
	ctx context.Context, controlPlane *unstructured.Unstructured, template *infrav1.ElementalMachineTemplate,
) (*preflight.Need, error) {
	version, _, _ := unstructured.NestedString(controlPlane.Object, "spec", "version")
	if controlPlane.GetKind() != "KubeadmControlPlane" || version == "" {
		return nil, nil
	}
	found, err := release.Get(ctx, r.Client, template.Namespace, version)
	if err != nil {
		return nil, err
	}
	spec := ptr.Deref(template.Spec.Template.Spec, infrav1.ElementalMachineSpec{})
	return placement.Preflight(&spec, version, true, found), nil
}

// replicas reads the number of machines from where the control plane contract has it. A
// control plane without the field has one machine.
func replicas(controlPlane *unstructured.Unstructured) int32 {
	n, found, err := unstructured.NestedInt64(controlPlane.Object, "spec", "replicas")
	if err != nil || !found || n < 0 || n > math.MaxInt32 {
		return 1
	}
	return int32(n)
}

// surges reports whether a rollout creates a machine before it deletes one. Control
// planes do unless maxSurge is 0, which has no place in the contract: it is read from where
// KubeadmControlPlane has it, v1beta2 and v1beta1.
func surges(controlPlane *unstructured.Unstructured) bool {
	for _, path := range [][]string{
		{"spec", "rollout", "strategy", "rollingUpdate", "maxSurge"},
		{"spec", "rolloutStrategy", "rollingUpdate", "maxSurge"},
	} {
		if value, found, err := unstructured.NestedFieldNoCopy(controlPlane.Object, path...); err == nil && found {
			return fmt.Sprint(value) != "0"
		}
	}
	return true
}

// machineTemplateRef reads the reference to the machine template from where the
// control plane contract has it: v1beta2, then v1beta1.
func machineTemplateRef(controlPlane *unstructured.Unstructured) (kind, name string) {
	for _, path := range [][]string{
		{"spec", "machineTemplate", "spec", "infrastructureRef"},
		{"spec", "machineTemplate", "infrastructureRef"},
	} {
		kind, _, _ = unstructured.NestedString(controlPlane.Object, append(path, "kind")...)
		name, _, _ = unstructured.NestedString(controlPlane.Object, append(path, "name")...)
		if kind != "" {
			return kind, name
		}
	}
	return "", ""
}
