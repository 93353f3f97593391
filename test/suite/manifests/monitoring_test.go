package manifests_test

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// The Service selects the manager's Pods, the ServiceMonitor the Service, and the role permits to read
// metrics and nothing else.
func TestMonitoring(t *testing.T) {
	g, folder := NewWithT(t), release(t)
	values := map[string]string{"ELEMENTAL_NAMESPACE": env.Namespace(t), "ELEMENTAL_METRICS_NAMESPACE": "watchers", "ELEMENTAL_METRICS_SERVICE_ACCOUNT": "prom"}
	byKind := map[string]*unstructured.Unstructured{}
	for _, obj := range objects(t, filepath.Join(folder, "monitoring.yaml"), values) {
		byKind[obj.GetKind()] = obj
		// The API server of this test does not know the operator's kinds.
		if obj.GetKind() != "ServiceMonitor" {
			g.Expect(apply(t.Context(), env.Client(t), []*unstructured.Unstructured{obj})).To(Succeed())
		}
	}

	service := &corev1.Service{}
	convert(g, byKind["Service"], service)
	template := deployment(g, objects(t, filepath.Join(folder, "infrastructure-components.yaml"), nil)).Spec.Template
	g.Expect(labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels))).To(BeTrue())
	g.Expect(service.Spec.Ports).To(HaveLen(1))
	g.Expect(template.Spec.Containers[0].Ports).To(ContainElement(And(
		HaveField("Name", service.Spec.Ports[0].TargetPort.StrVal), HaveField("ContainerPort", service.Spec.Ports[0].Port),
	)))

	var monitor struct {
		Spec struct {
			Selector  metav1.LabelSelector `json:"selector"`
			Endpoints []struct {
				Port   string `json:"port"`
				Scheme string `json:"scheme"`
			} `json:"endpoints"`
		} `json:"spec"`
	}
	convert(g, byKind["ServiceMonitor"], &monitor)
	g.Expect(byKind["ServiceMonitor"].GetNamespace()).To(Equal(service.Namespace))
	g.Expect(labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels))).To(BeTrue())
	g.Expect(monitor.Spec.Endpoints).To(HaveLen(1))
	g.Expect(monitor.Spec.Endpoints[0].Port).To(Equal(service.Spec.Ports[0].Name))
	g.Expect(monitor.Spec.Endpoints[0].Scheme).To(Equal("https"))

	role, binding := &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}
	convert(g, byKind["ClusterRole"], role)
	convert(g, byKind["ClusterRoleBinding"], binding)
	g.Expect(role.Rules).To(Equal([]rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}))
	for user, allowed := range map[string]bool{"system:serviceaccount:watchers:prom": true, "system:serviceaccount:watchers:default": false} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		}}
		g.Eventually(func() (bool, error) {
			review.ResourceVersion = ""
			err := env.Client(t).Create(t.Context(), review)
			return review.Status.Allowed, err
		}).WithTimeout(time.Minute).Should(Equal(allowed), user)
	}
}
