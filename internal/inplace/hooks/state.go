package hooks

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

// object is an object in a request, as far as it is judged.
type object struct {
	kind string
	// spec is the part that is judged, as decoded JSON; nil if it is missing.
	spec map[string]any
}

// decode decodes an object. The spec of a template is that of what it makes.
func decode(raw runtime.RawExtension, isTemplate bool) (object, error) {
	if len(raw.Raw) == 0 {
		return object{}, nil
	}
	content := struct {
		Kind string         `json:"kind"`
		Spec map[string]any `json:"spec"`
	}{}
	if err := json.Unmarshal(raw.Raw, &content); err != nil {
		return object{}, err
	}
	if isTemplate {
		template, _ := content.Spec["template"].(map[string]any)
		content.Spec, _ = template["spec"].(map[string]any)
	}
	return object{kind: content.Kind, spec: content.Spec}, nil
}

// objects are the infrastructure and the bootstrap configuration in a request.
type objects struct{ infrastructure, bootstrap object }

func decodeObjects(infrastructure, bootstrap runtime.RawExtension, areTemplates bool) (o objects, err error) {
	if o.infrastructure, err = decode(infrastructure, areTemplates); err != nil {
		return objects{}, fmt.Errorf("decoding the infrastructure: %w", err)
	}
	if o.bootstrap, err = decode(bootstrap, areTemplates); err != nil {
		return objects{}, fmt.Errorf("decoding the bootstrap configuration: %w", err)
	}
	return o, nil
}

// addTo adds the objects to the state of their Machine.
func (o objects) addTo(s *inplace.State) error {
	s.BootstrapKind, s.Bootstrap = o.bootstrap.kind, o.bootstrap.spec
	text, err := json.Marshal(o.infrastructure.spec)
	if err == nil {
		err = json.Unmarshal(text, &s.Infrastructure)
	}
	if err != nil {
		return fmt.Errorf("decoding the infrastructure: %w", err)
	}
	return nil
}

// patchObject returns the patch that makes the value at the path the desired one; an empty
// patch if it is that already. Cluster API applies it to the current object and compares.
func patchObject(path string, current, desired map[string]any) (runtimehooksv1.Patch, error) {
	if equality.Semantic.DeepEqual(current, desired) && (current == nil) == (desired == nil) {
		return runtimehooksv1.Patch{}, nil
	}
	if desired == nil {
		return newPatch(operation{Op: "remove", Path: path})
	}
	return newPatch(operation{Op: "add", Path: path, Value: desired})
}

// patchVersion returns the patch for a version at the path.
func patchVersion(path, current, desired string) (runtimehooksv1.Patch, error) {
	if current == desired {
		return runtimehooksv1.Patch{}, nil
	}
	return newPatch(operation{Op: "add", Path: path, Value: desired})
}

// operation is an operation of a JSON patch. "add" replaces what is there.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func newPatch(operations ...operation) (runtimehooksv1.Patch, error) {
	text, err := json.Marshal(operations)
	if err != nil {
		return runtimehooksv1.Patch{}, fmt.Errorf("encoding a patch: %w", err)
	}
	return runtimehooksv1.Patch{PatchType: runtimehooksv1.JSONPatchType, Patch: text}, nil
}
