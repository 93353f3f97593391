package embedded

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// changes reports whether the API server calls the mutating webhooks of Cluster API's core: a Machine gets the label
// of its Cluster.
func changes(ctx context.Context, admin client.Client) error {
	machine := newObject(clusterv1.GroupVersion.String(), "Machine", map[string]any{
		"clusterName": "trial",
		"bootstrap":   map[string]any{"dataSecretName": "trial"},
		"infrastructureRef": map[string]any{
			"apiGroup": infrav1.GroupVersion.Group, "kind": "ElementalMachine", "name": "trial",
		},
	})
	if err := admin.Create(ctx, machine, client.DryRunAll); err != nil {
		return fmt.Errorf("trying to create a Machine: %w", err)
	}
	if machine.GetLabels()[clusterv1.ClusterNameLabel] == "" {
		return errors.New("a Machine was not completed")
	}
	return nil
}

// checks reports whether the API server calls the validating webhooks of this provider: the schema alone allows a
// name pattern that names no host.
func checks(ctx context.Context, admin client.Client) error {
	registration := newObject(infrav1.GroupVersion.String(), "ElementalRegistration", map[string]any{
		"hostTemplate": map[string]any{"namePattern": badPattern},
	})
	err := admin.Create(ctx, registration, client.DryRunAll)
	if err == nil {
		return errors.New("a bad ElementalRegistration was not refused")
	}
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("trying to create an ElementalRegistration: %w", err)
	}
	return nil
}

// badPattern names a field that there is not.
const badPattern = "{{ .NoSuchField }}"

func newObject(version, kind string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(version)
	obj.SetKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName("trial")
	return obj
}
