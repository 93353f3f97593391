package manifests_test

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const namespace = "elemental-system"

// The Pod label by which the leader alone is selected.
var leaderLabel = map[string]string{"infrastructure.cluster.x-k8s.io/elemental-agent-api": "leader"}

func TestComponents(t *testing.T) {
	folder := release(t)
	file := filepath.Join(folder, "infrastructure-components.yaml")
	// No server runs for the webhooks here, and other tests write objects that the webhooks
	// validate.
	t.Cleanup(func() {
		hooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := env.Client(t).DeleteAllOf(context.Background(), hooks); err != nil {
			t.Errorf("removing webhooks: %v", err)
		}
		awaitNoWebhooks(t)
	})
	for name, values := range map[string]map[string]string{
		"defaults": nil,
		"node port": {
			"ELEMENTAL_AGENT_API_URL":          "https://10.0.0.1:30444",
			"ELEMENTAL_AGENT_API_SERVICE_TYPE": "NodePort",
			"ELEMENTAL_AGENT_API_NODE_PORT":    "30444",
		},
		"load balancer": {
			"ELEMENTAL_AGENT_API_SERVICE_TYPE": "LoadBalancer", "ELEMENTAL_AGENT_API_ANNOTATIONS": "{metallb.io/address-pool: edge}",
			"ELEMENTAL_MANAGER_ARGS": "--agent-downloads=64 -v=2",
		},
		"endpoints in a domain": {
			"ELEMENTAL_ENDPOINT_PORT": "8443", "ELEMENTAL_ENDPOINT_DOMAIN": "clusters.example.com", "ELEMENTAL_CLUSTER_DOMAIN": "example.org",
		},
		"users from outside": {
			"ELEMENTAL_GATEWAY_PROXY_SERVICE_TYPE": "NodePort", "ELEMENTAL_GATEWAY_PROXY_NODE_PORT": "30445",
			"ELEMENTAL_GATEWAY_URL": "https://gateway.example.com:30445", "ELEMENTAL_GATEWAY_CERT_DIR": "/gateway-cert",
		},
		"load balancer that keeps addresses": {
			"ELEMENTAL_AGENT_API_SERVICE_TYPE":            "LoadBalancer",
			"ELEMENTAL_AGENT_API_EXTERNAL_TRAFFIC_POLICY": "Local",
			"ELEMENTAL_AGENT_API_PROXIES":                 "192.0.2.0/28,2001:db8::/64",
			"ELEMENTAL_KUBE_VIP_REPOSITORIES":             "ghcr.io/kube-vip,registry.example.com:5000",
			"ELEMENTAL_KUBE_VIP_REQUIRE_DIGEST":           "true",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var known []*unstructured.Unstructured
			for _, obj := range objects(t, file, values) {
				// The test's API server has no cert-manager.
				if obj.GroupVersionKind().Group != "cert-manager.io" {
					known = append(known, obj)
				}
			}
			g.Expect(apply(t.Context(), env.Client(t), known)).To(Succeed())
			service := &corev1.Service{}
			g.Expect(env.Client(t).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "elemental-agent-api"}, service)).To(Succeed())
			if port := values["ELEMENTAL_AGENT_API_NODE_PORT"]; port != "" {
				g.Expect(service.Spec.Ports[0].NodePort).To(Equal(int32(30444)))
			}
			if values["ELEMENTAL_AGENT_API_ANNOTATIONS"] != "" {
				g.Expect(service.Annotations).To(Equal(map[string]string{"metallb.io/address-pool": "edge"}))
			}
			if policy := values["ELEMENTAL_AGENT_API_EXTERNAL_TRAFFIC_POLICY"]; policy != "" {
				g.Expect(service.Spec.ExternalTrafficPolicy).To(Equal(corev1.ServiceExternalTrafficPolicy(policy)))
			}
			deployment := &appsv1.Deployment{}
			g.Expect(env.Client(t).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "elemental-controller-manager"}, deployment)).To(Succeed())
			manager := deployment.Spec.Template.Spec.Containers[0]
			for _, name := range []string{"AGENT_API_PROXIES", "KUBE_VIP_REPOSITORIES", "ENDPOINT_DOMAIN", "CLUSTER_DOMAIN", "GATEWAY_URL", "GATEWAY_CERT_DIR", "MANAGER_ARGS"} {
				g.Expect(manager.Env).To(ContainElement(And(HaveField("Name", name), HaveField("Value", values["ELEMENTAL_"+name]))))
			}
			g.Expect(manager.Args).To(ContainElement("--kube-vip-require-digest=" + cmp.Or(values["ELEMENTAL_KUBE_VIP_REQUIRE_DIGEST"], "false")))
			endpointPort := cmp.Or(values["ELEMENTAL_ENDPOINT_PORT"], "16443")
			g.Expect(manager.Args).To(ContainElement("--endpoint-port=" + endpointPort))
			gateway := &corev1.Service{}
			g.Expect(env.Client(t).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "elemental-gateway"}, gateway)).To(Succeed())
			g.Expect(gateway.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
			g.Expect(gateway.Spec.Selector).To(Equal(service.Spec.Selector), "the tunnels lead to the leader")
			g.Expect(strconv.Itoa(int(gateway.Spec.Ports[0].Port))).To(Equal(endpointPort), "a name maps no ports")
			users := &corev1.Service{}
			g.Expect(env.Client(t).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "elemental-gateway-proxy"}, users)).To(Succeed())
			g.Expect(string(users.Spec.Type)).To(Equal(cmp.Or(values["ELEMENTAL_GATEWAY_PROXY_SERVICE_TYPE"], "ClusterIP")))
			g.Expect(users.Spec.Selector).To(Equal(service.Spec.Selector), "the tunnels lead to the leader")
			if port := values["ELEMENTAL_GATEWAY_PROXY_NODE_PORT"]; port != "" {
				g.Expect(users.Spec.Ports[0].NodePort).To(Equal(int32(30445)))
			}
			g.Expect(manager.VolumeMounts).To(ContainElement(And(HaveField("Name", "gateway-cert"), HaveField("MountPath", "/gateway-cert"))))
		})
	}
}

// TestComponentsFitTogether checks the labels and namespaces that clusterctl requires, and that
// selectors, ports, roles and Secrets refer to existing objects.
func TestComponentsFitTogether(t *testing.T) {
	g := NewWithT(t)
	all := objects(t, filepath.Join(release(t), "infrastructure-components.yaml"), nil)

	byKind := map[string][]*unstructured.Unstructured{}
	for _, obj := range all {
		byKind[obj.GetKind()] = append(byKind[obj.GetKind()], obj)
		g.Expect(obj.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/provider", "infrastructure-elemental"), "%s %s", obj.GetKind(), obj.GetName())
		g.Expect(obj.GetNamespace()).To(BeElementOf("", namespace))
	}
	g.Expect(byKind["Namespace"]).To(HaveLen(1))
	g.Expect(byKind["CustomResourceDefinition"]).To(HaveLen(11))

	deployment := &appsv1.Deployment{}
	g.Expect(byKind["Deployment"]).To(HaveLen(1))
	convert(g, byKind["Deployment"][0], deployment)
	manager := deployment.Spec.Template.Spec.Containers[0]
	g.Expect(manager.Name).To(Equal("manager"))
	g.Expect(manager.Image).To(Equal(image + ":" + version))

	pod := labels.Merge(deployment.Spec.Template.Labels, leaderLabel)
	for _, obj := range byKind["Service"] {
		service := &corev1.Service{}
		convert(g, obj, service)
		g.Expect(labels.SelectorFromSet(service.Spec.Selector).Matches(pod)).To(BeTrue(), service.Name)
		g.Expect(manager.Ports).To(ContainElement(HaveField("Name", service.Spec.Ports[0].TargetPort.StrVal)), service.Name)
	}
	for _, kind := range []string{"Role", "ClusterRole"} {
		for _, obj := range byKind[kind+"Binding"] {
			role, _, err := unstructured.NestedString(obj.Object, "roleRef", "name")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(byKind[kind]).To(ContainElement(HaveName(role)), "role of %s", obj.GetName())
		}
		bound := len(byKind[kind+"Binding"])
		if kind == "ClusterRole" {
			bound += len(rolesForOthers())
		}
		g.Expect(byKind[kind]).To(HaveLen(bound), "each %s is bound, but those for others", kind)
	}
	secret, _, err := unstructured.NestedString(byKind["Certificate"][0].Object, "spec", "secretName")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(deployment.Spec.Template.Spec.Volumes).To(ContainElement(HaveField("VolumeSource.Secret.SecretName", secret)))
}

// The manager's Pod fits the Pod Security level "restricted" that its namespace enforces.
func TestManagerPodIsRestricted(t *testing.T) {
	g := NewWithT(t)
	c := env.Client(t)
	ns := env.Namespace(t)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	g.Expect(c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, patch)).To(Succeed())

	for _, obj := range objects(t, filepath.Join(release(t), "infrastructure-components.yaml"), nil) {
		if obj.GetKind() != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		convert(g, obj, deployment)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: ns}, Spec: deployment.Spec.Template.Spec,
		}
		g.Expect(c.Create(t.Context(), pod)).To(Succeed())
	}
}

func convert(g Gomega, from *unstructured.Unstructured, to any) {
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to)).To(Succeed())
}

// HaveName matches an object by its name.
func HaveName(name string) OmegaMatcher {
	return WithTransform(func(obj *unstructured.Unstructured) string { return obj.GetName() }, Equal(name))
}
