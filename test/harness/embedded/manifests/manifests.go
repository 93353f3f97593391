package manifests

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Webhook is the address of a manager's webhooks.
type Webhook struct {
	// Port is its port on 127.0.0.1.
	Port int
	// CABundle has the CA certificates for its certificate (PEM).
	CABundle []byte
}

// Provider has the objects that a manager needs in the API server.
type Provider struct {
	// Objects must be created before the manager starts, in this order.
	Objects []*unstructured.Unstructured
	// Webhooks are configurations that reject objects until the manager serves the webhooks.
	Webhooks []*unstructured.Unstructured
	// User is the user name of the manager's ServiceAccount, to which its roles are bound.
	User string
}

// Read parses the components of a provider, YAML written by kustomize.
func Read(components []byte, webhook Webhook) (*Provider, error) {
	p := &Provider{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(components), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading components: %w", err)
		}
		if len(obj.Object) == 0 {
			continue
		}
		if err := p.add(obj, webhook); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	if p.User == "" {
		return nil, errors.New("reading components: there is no ServiceAccount for the manager")
	}
	return p, nil
}

// KeepStored removes all versions except the storage version from all kinds, and with them conversion. kube-apiserver
// otherwise keeps every object in every version and calls the manager to convert it after every change.
func (p *Provider) KeepStored() error {
	for _, obj := range p.Objects {
		if obj.GetKind() != "CustomResourceDefinition" {
			continue
		}
		versions, _, err := unstructured.NestedSlice(obj.Object, "spec", "versions")
		if err != nil {
			return fmt.Errorf("reading the versions of %s: %w", obj.GetName(), err)
		}
		versions = slices.DeleteFunc(versions, func(version any) bool {
			v, ok := version.(map[string]any)
			stored, _ := v["storage"].(bool)
			return ok && !stored
		})
		if err := unstructured.SetNestedSlice(obj.Object, versions, "spec", "versions"); err != nil {
			return fmt.Errorf("writing the versions of %s: %w", obj.GetName(), err)
		}
		unstructured.RemoveNestedField(obj.Object, "spec", "conversion")
	}
	return nil
}

// add adds an object to the right list.
func (p *Provider) add(obj *unstructured.Unstructured, webhook Webhook) error {
	switch obj.GetKind() {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		p.Webhooks = append(p.Webhooks, obj)
		return redirectHooks(obj, webhook)
	case "CustomResourceDefinition":
		p.Objects = append(p.Objects, obj)
		return redirectConversion(obj, webhook)
	case "ServiceAccount":
		if p.User != "" {
			return fmt.Errorf("there is already %s, and a manager has one", p.User)
		}
		p.User = fmt.Sprintf("system:serviceaccount:%s:%s", obj.GetNamespace(), obj.GetName())
		p.Objects = append(p.Objects, obj)
	case "Namespace", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		p.Objects = append(p.Objects, obj)
	case "Deployment", "Service", "Certificate", "Issuer":
		// These objects are for a manager in a Pod.
	default:
		return errors.New("a manager that is a process may need this kind or not: say so in package manifests")
	}
	return nil
}

// redirectHooks changes the address of the webhooks of a configuration.
func redirectHooks(obj *unstructured.Unstructured, webhook Webhook) error {
	hooks, _, err := unstructured.NestedSlice(obj.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("reading its webhooks: %w", err)
	}
	for i := range hooks {
		hook, ok := hooks[i].(map[string]any)
		if !ok {
			return fmt.Errorf("reading its webhooks: one is a %T", hooks[i])
		}
		if err := redirect(hook, webhook); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(obj.Object, hooks, "webhooks")
}

// redirectConversion changes the address of a kind's conversion webhook, if it has one.
func redirectConversion(obj *unstructured.Unstructured, webhook Webhook) error {
	conversion, found, err := unstructured.NestedMap(obj.Object, "spec", "conversion", "webhook")
	if err != nil {
		return fmt.Errorf("reading its conversion: %w", err)
	}
	if !found {
		return nil
	}
	if err := redirect(conversion, webhook); err != nil {
		return err
	}
	return unstructured.SetNestedMap(obj.Object, conversion, "spec", "conversion", "webhook")
}

// redirect replaces the Service in an object's clientConfig by an URL.
func redirect(holder map[string]any, webhook Webhook) error {
	path, found, err := unstructured.NestedString(holder, "clientConfig", "service", "path")
	if err != nil {
		return fmt.Errorf("reading the path of a webhook: %w", err)
	}
	if !found {
		return errors.New("reading the path of a webhook: its clientConfig names no Service")
	}
	holder["clientConfig"] = map[string]any{
		"url":      fmt.Sprintf("https://127.0.0.1:%d%s", webhook.Port, path),
		"caBundle": base64.StdEncoding.EncodeToString(webhook.CABundle),
	}
	return nil
}
