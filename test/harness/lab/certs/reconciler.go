package certs

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	injectAnnotation = "cert-manager.io/inject-ca-from"
	// nameAnnotation marks the Secrets of this package. The reconciler does not change other
	// Secrets.
	nameAnnotation = "cert-manager.io/certificate-name"
)

// Reconciler fulfils Certificates and CA injections.
type Reconciler struct {
	Client client.Client
	Now    func() time.Time
}

// SetupWithManager registers the reconciler for all kinds that it reads.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	})
	having := func(annotation string) builder.WatchesOption {
		return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetAnnotations()[annotation] != ""
		}))
	}
	return ctrl.NewControllerManagedBy(mgr).Named("certs").
		Watches(newCertificate(), all).
		Watches(&corev1.Secret{}, all, having(nameAnnotation)).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, all, having(injectAnnotation)).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, all, having(injectAnnotation)).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, all, having(injectAnnotation)).
		Complete(r)
}

// Reconcile writes the Secrets of all Certificates, and then injects the CAs into annotated
// objects.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(newCertificate().GroupVersionKind())
	if err := r.Client.List(ctx, list); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing certificates: %w", err)
	}
	bundles := map[string][]byte{}
	for i := range list.Items {
		certificate := &list.Items[i]
		if !certificate.GetDeletionTimestamp().IsZero() {
			continue
		}
		bundle, err := r.fulfil(ctx, certificate)
		if ignoreRace(err) != nil {
			return reconcile.Result{}, fmt.Errorf("issuing %s/%s: %w", certificate.GetNamespace(), certificate.GetName(), err)
		}
		bundles[certificate.GetNamespace()+"/"+certificate.GetName()] = bundle
	}
	if err := r.inject(ctx, bundles); err != nil {
		return reconcile.Result{}, fmt.Errorf("injecting CAs: %w", err)
	}
	return reconcile.Result{}, nil
}

// ignoreRace ignores errors for objects in a namespace that is being deleted.
func ignoreRace(err error) error {
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// fulfil writes the Secret of a Certificate unless it is valid, marks the Certificate ready and
// returns the CA.
func (r *Reconciler) fulfil(ctx context.Context, certificate *unstructured.Unstructured) ([]byte, error) {
	wanted, name := readRequest(certificate)
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: certificate.GetNamespace(), Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting its Secret: %w", err)
	}
	exists := err == nil
	if !fulfils(secret.Data, wanted, r.Now()) {
		if secret.Data, err = issue(wanted, r.Now()); err != nil {
			return nil, err
		}
		secret.Namespace, secret.Name, secret.Type = certificate.GetNamespace(), name, corev1.SecretTypeTLS
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, nameAnnotation, certificate.GetName())
		if exists {
			err = r.Client.Update(ctx, secret)
		} else {
			err = r.Client.Create(ctx, secret)
		}
		if err != nil {
			return nil, fmt.Errorf("writing its Secret: %w", err)
		}
	}
	return secret.Data[corev1.ServiceAccountRootCAKey], r.markReady(ctx, certificate)
}

// markReady sets the Ready condition for which users and tools wait.
func (r *Reconciler) markReady(ctx context.Context, certificate *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(certificate.Object, "status", "conditions")
	if len(conditions) > 0 {
		return nil
	}
	ready := map[string]any{
		"type": "Ready", "status": "True", "reason": "Ready", "message": "Certificate is up to date and has not expired",
		"lastTransitionTime": r.Now().UTC().Format(time.RFC3339),
	}
	if err := unstructured.SetNestedSlice(certificate.Object, []any{ready}, "status", "conditions"); err != nil {
		return fmt.Errorf("setting its condition: %w", err)
	}
	if err := r.Client.Status().Update(ctx, certificate); err != nil {
		return fmt.Errorf("writing its condition: %w", err)
	}
	return nil
}

// inject writes CA bundles into webhooks and conversion webhooks that are annotated with a
// Certificate's namespace/name.
func (r *Reconciler) inject(ctx context.Context, bundles map[string][]byte) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if err := r.Client.List(ctx, mutating); err != nil {
		return err
	}
	for i := range mutating.Items {
		var configs []*admissionregistrationv1.WebhookClientConfig
		for j := range mutating.Items[i].Webhooks {
			configs = append(configs, &mutating.Items[i].Webhooks[j].ClientConfig)
		}
		if err := r.injectInto(ctx, &mutating.Items[i], bundles, configs...); err != nil {
			return err
		}
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := r.Client.List(ctx, validating); err != nil {
		return err
	}
	for i := range validating.Items {
		var configs []*admissionregistrationv1.WebhookClientConfig
		for j := range validating.Items[i].Webhooks {
			configs = append(configs, &validating.Items[i].Webhooks[j].ClientConfig)
		}
		if err := r.injectInto(ctx, &validating.Items[i], bundles, configs...); err != nil {
			return err
		}
	}
	return r.injectConversions(ctx, bundles)
}

// injectInto updates an object if the bundle of one of its webhooks is outdated.
func (r *Reconciler) injectInto(
	ctx context.Context, object client.Object, bundles map[string][]byte, configs ...*admissionregistrationv1.WebhookClientConfig,
) error {
	bundle := bundles[object.GetAnnotations()[injectAnnotation]]
	changed := false
	for _, config := range configs {
		if len(bundle) > 0 && !bytes.Equal(config.CABundle, bundle) {
			config.CABundle, changed = bundle, true
		}
	}
	if !changed {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Update(ctx, object))
}

// injectConversions does the same for CRDs with a conversion webhook. It patches, because CRDs are
// large and other controllers own their other fields.
func (r *Reconciler) injectConversions(ctx context.Context, bundles map[string][]byte) error {
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := r.Client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		crd := &list.Items[i]
		bundle := bundles[crd.Annotations[injectAnnotation]]
		conversion := crd.Spec.Conversion
		if len(bundle) == 0 || conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil ||
			bytes.Equal(conversion.Webhook.ClientConfig.CABundle, bundle) {
			continue
		}
		patch := `{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":"` +
			base64.StdEncoding.EncodeToString(bundle) + `"}}}}}`
		err := r.Client.Patch(ctx, crd, client.RawPatch(types.MergePatchType, []byte(patch)))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// readRequest returns the request in a Certificate and the name of its Secret.
func readRequest(certificate *unstructured.Unstructured) (request, string) {
	list := func(path string) []string {
		values, _, _ := unstructured.NestedStringSlice(certificate.Object, strings.Split(path, ".")...)
		return values
	}
	name, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	common, _, _ := unstructured.NestedString(certificate.Object, "spec", "commonName")
	return request{
		commonName:    common,
		organizations: list("spec.subject.organizations"),
		dnsNames:      list("spec.dnsNames"),
		ipAddresses:   list("spec.ipAddresses"),
	}, name
}

func newCertificate() *unstructured.Unstructured {
	certificate := &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"})
	return certificate
}
