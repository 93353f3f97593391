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

// Webhook is where a manager serves its webhooks.
type Webhook struct {
	// Port is its port on 127.0.0.1.
	Port int
	// CABundle is what its certificate is checked with, PEM.
	CABundle []byte
}

// Provider is what a manager needs in the API server.
type Provider struct {
	// Objects are to be there before the manager starts, in this order.
	Objects []*unstructured.Unstructured
	// Webhooks are configurations that refuse objects as long as the manager does not serve them.
	Webhooks []*unstructured.Unstructured
	// User is the manager's name, that of its ServiceAccount: its roles are bound to it.
	User string
}

// Read reads a provider's components, YAML as kustomize writes it.
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

// KeepStored takes all versions of all kinds away but those that objects are stored in, and with them the conversion.
// kube-apiserver keeps every object in each of a kind's versions, whether anybody asks for it or not, and has the manager
// convert it whenever it changes.
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

// add sorts an object in.
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
		// They are for a manager in a Pod.
	default:
		return errors.New("a manager that is a process may need this kind or not: say so in package manifests")
	}
	return nil
}

// redirectHooks changes where the webhooks of a configuration are called.
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

// redirectConversion changes where a kind's conversion webhook is called, if it has one.
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
