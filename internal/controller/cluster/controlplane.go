package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/placement"
)

// request says which hosts the cluster's control plane may have, from the
// control plane's machine template. ok is false, and s.endpoint says why, while
// that is not known.
func (r *Reconciler) request(ctx context.Context, s *scope) (_ placement.Request, ok bool, _ error) {
	waiting := func(reason, format string, args ...any) (placement.Request, bool, error) {
		s.endpoint = endpointState{reason: reason, message: fmt.Sprintf(format, args...)}
		return placement.Request{}, false, nil
	}
	ref := s.cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() {
		return waiting(infrav1.WaitingForControlPlaneRefReason,
			"The Cluster has no spec.controlPlaneRef; set it, or set spec.controlPlaneEndpoint.host here")
	}
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := r.Client.Get(ctx, client.ObjectKey{Name: contract.CalculateCRDName(ref.APIGroup, ref.Kind)}, crd)
	if apierrors.IsNotFound(err) {
		return waiting(infrav1.TemplateNotFoundReason, "The kind %s of group %s is not installed here", ref.Kind, ref.APIGroup)
	}
	if err != nil {
		return placement.Request{}, false, fmt.Errorf("looking for kind %s: %w", ref.Kind, err)
	}
	controlPlane, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, s.cluster.Namespace)
	if apierrors.IsNotFound(err) {
		return waiting(infrav1.TemplateNotFoundReason, "%s %s does not exist yet", ref.Kind, ref.Name)
	}
	if err != nil {
		return placement.Request{}, false, fmt.Errorf("getting control plane: %w", err)
	}
	kind, name := machineTemplate(controlPlane)
	if kind != "ElementalMachineTemplate" {
		return waiting(infrav1.TemplateNotFoundReason,
			"%s %s names no ElementalMachineTemplate (it names kind %q); set spec.controlPlaneEndpoint.host here", ref.Kind, ref.Name, kind)
	}
	template := &infrav1.ElementalMachineTemplate{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, template)
	if apierrors.IsNotFound(err) {
		return waiting(infrav1.TemplateNotFoundReason, "ElementalMachineTemplate %s does not exist yet", name)
	}
	if err != nil {
		return placement.Request{}, false, fmt.Errorf("getting ElementalMachineTemplate: %w", err)
	}
	request := placement.Request{ReservedFor: s.cluster.Name}
	if spec := template.Spec.Template.Spec; spec != nil {
		request.Selector = r.Selectors.Compile(ctx, spec.HostSelector)
	}
	return request, true, nil
}

// machineTemplate reads where the control plane contract keeps the reference to
// the machine template: v1beta2, then v1beta1.
func machineTemplate(controlPlane *unstructured.Unstructured) (kind, name string) {
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
