package manifests

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const components = `
apiVersion: v1
kind: Namespace
metadata: {name: s}
---
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: converted}
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig: {service: {name: w, namespace: s, path: /convert}}
      conversionReviewVersions: [v1]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: plain}
spec: {group: g}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: manager, namespace: s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: s}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mutating}
webhooks:
- name: a
  clientConfig: {service: {name: w, namespace: s, path: /a}}
- name: b
  clientConfig: {service: {name: w, namespace: s, path: /b}}
`

func names(objects []*unstructured.Unstructured) []string {
	out := make([]string, 0, len(objects))
	for _, obj := range objects {
		out = append(out, obj.GetName())
	}
	return out
}

func TestRead(t *testing.T) {
	g := NewWithT(t)
	p, err := Read([]byte(components), Webhook{Port: 1234, CABundle: []byte("pem")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(p.Objects)).To(Equal([]string{"s", "converted", "plain", "manager"}))
	g.Expect(names(p.Webhooks)).To(Equal([]string{"mutating"}))
	g.Expect(p.User).To(Equal("system:serviceaccount:s:manager"))

	client := func(path string) map[string]any {
		return map[string]any{"url": "https://127.0.0.1:1234" + path, "caBundle": "cGVt"}
	}
	g.Expect(p.Objects[1].Object["spec"]).To(Equal(map[string]any{"conversion": map[string]any{
		"strategy": "Webhook",
		"webhook":  map[string]any{"clientConfig": client("/convert"), "conversionReviewVersions": []any{"v1"}},
	}}))
	g.Expect(p.Webhooks[0].Object["webhooks"]).To(Equal([]any{
		map[string]any{"name": "a", "clientConfig": client("/a")}, map[string]any{"name": "b", "clientConfig": client("/b")},
	}))
}

func TestKeepStored(t *testing.T) {
	g := NewWithT(t)
	two := strings.Replace(components, "spec: {group: g}", "spec: {versions: [{name: v1, storage: false}, {name: v2, storage: true}]}", 1)
	p, err := Read([]byte(two), Webhook{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.KeepStored()).To(Succeed())
	g.Expect(p.Objects[1].Object["spec"]).NotTo(HaveKey("conversion"))
	g.Expect(p.Objects[2].Object["spec"]).To(Equal(map[string]any{"versions": []any{map[string]any{"name": "v2", "storage": true}}}))
}

func TestReadRefuses(t *testing.T) {
	account := components[strings.Index(components, "apiVersion: v1\nkind: ServiceAccount"):strings.Index(components, "apiVersion: apps/v1")]
	for name, tc := range map[string]struct{ components, want string }{
		"no account":   {strings.Replace(components, account, "", 1), "there is no ServiceAccount"},
		"two accounts": {components + "---\n" + account, "a manager has one"},
		"a kind":       {components + "---\nkind: PodDisruptionBudget\nmetadata: {name: x}", "reading PodDisruptionBudget x"},
		"an URL":       {strings.Replace(components, "{service: {name: w, namespace: s, path: /b}}", "{url: x}", 1), "names no Service"},
		"no YAML":      {components + "---\n{", "reading components"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(tc.components), Webhook{})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.want)))
		})
	}
}
