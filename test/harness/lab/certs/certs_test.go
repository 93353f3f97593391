package certs

import (
	"bytes"
	"crypto/tls"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestFulfils(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := request{dnsNames: []string{"a.b.svc", "a.b.svc.cluster.local"}, ipAddresses: []string{"10.0.0.1"}}
	data, err := issue(r, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]); err != nil {
		t.Fatal(err)
	}
	other, err := issue(r, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		data map[string][]byte
		r    request
		now  time.Time
		want bool
	}{
		{"as issued", data, r, now, true},
		{"fewer names", data, request{dnsNames: r.dnsNames[:1]}, now, true},
		{"another name", data, request{dnsNames: []string{"c.b.svc"}}, now, false},
		{"another address", data, request{ipAddresses: []string{"10.0.0.2"}}, now, false},
		{"nothing", nil, r, now, false},
		{"the key of another", map[string][]byte{
			"tls.crt": data["tls.crt"], "tls.key": other["tls.key"], "ca.crt": data["ca.crt"],
		}, r, now, false},
		{"no CA", map[string][]byte{"tls.crt": data["tls.crt"], "tls.key": data["tls.key"]}, r, now, false},
		{"soon expired", data, r, now.Add(lifetime * 19 / 20), false},
		{"not valid yet", data, r, now.Add(-2 * time.Hour), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fulfils(tt.data, tt.r, tt.now); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if _, err := issue(request{ipAddresses: []string{"nonsense"}}, now); err == nil {
		t.Error("a bad address was accepted")
	}
}

// objects returns a Certificate, and an object of each kind that requests its CA.
func objects() (*unstructured.Unstructured, []client.Object) {
	annotations := map[string]string{injectAnnotation: "system/serving-cert"}
	certificate := newCertificate()
	certificate.SetNamespace("system")
	certificate.SetName("serving-cert")
	certificate.Object["spec"] = map[string]any{
		"secretName": "webhook-cert", "dnsNames": []any{"webhook.system.svc"},
	}
	webhook := &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{}}
	return certificate, []client.Object{
		certificate,
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "mutating", Annotations: annotations},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "one"}, {Name: "two"}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "validating", Annotations: annotations},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "one"}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "one"}},
		},
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "converted", Annotations: annotations},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: webhook},
			},
		},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "plain", Annotations: annotations}},
	}
}

func TestReconcile(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	certificate, all := objects()
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(all...).WithStatusSubresource(certificate).Build()
	r := &Reconciler{Client: c, Now: time.Now}
	run := func() map[string][]byte {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{}
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "system", Name: "webhook-cert"}, secret); err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	get := func(o client.Object, name string) {
		t.Helper()
		if err := c.Get(t.Context(), types.NamespacedName{Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	first := run()
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	get(mutating, "mutating")
	get(validating, "validating")
	get(crd, "converted")
	for name, bundle := range map[string][]byte{
		"mutating one": mutating.Webhooks[0].ClientConfig.CABundle, "mutating two": mutating.Webhooks[1].ClientConfig.CABundle,
		"validating": validating.Webhooks[0].ClientConfig.CABundle, "conversion": crd.Spec.Conversion.Webhook.ClientConfig.CABundle,
	} {
		if !bytes.Equal(bundle, first["ca.crt"]) {
			t.Errorf("%s: got bundle %q", name, bundle)
		}
	}
	get(validating, "foreign")
	if len(validating.Webhooks[0].ClientConfig.CABundle) > 0 {
		t.Error("a webhook that did not ask got a bundle")
	}

	if again := run(); !bytes.Equal(again["tls.crt"], first["tls.crt"]) {
		t.Error("a good certificate was issued again")
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "webhook-cert"}}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	second := run()
	get(mutating, "mutating")
	if !bytes.Equal(mutating.Webhooks[0].ClientConfig.CABundle, second["ca.crt"]) {
		t.Error("the bundle of a certificate that was issued again was not injected")
	}
}
