package manifests_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// deployment returns the manager's Deployment.
func deployment(g Gomega, all []*unstructured.Unstructured) *appsv1.Deployment {
	found := &appsv1.Deployment{}
	for _, obj := range all {
		if obj.GetKind() == "Deployment" {
			convert(g, obj, found)
		}
	}
	return found
}

// The components for one namespace differ from the default ones by the binding of one role
// and one flag. Another file has the binding.
func TestNamespacedComponents(t *testing.T) {
	g := NewWithT(t)
	folder, ns := release(t), env.Namespace(t)
	values := map[string]string{"ELEMENTAL_WATCH_NAMESPACE": ns}
	ordinary := objects(t, filepath.Join(folder, "infrastructure-components.yaml"), nil)
	all := objects(t, filepath.Join(folder, "infrastructure-components-namespaced.yaml"), values)
	manager := deployment(g, ordinary)
	args := &manager.Spec.Template.Spec.Containers[0].Args
	*args = append(*args, "--namespace="+ns)
	g.Expect(deployment(g, all)).To(Equal(manager))

	bound := &rbacv1.ClusterRoleBinding{}
	rest := slices.DeleteFunc(ordinary, func(obj *unstructured.Unstructured) bool {
		if obj.GetKind() != "ClusterRoleBinding" || obj.GetName() != "elemental-manager-rolebinding" {
			return false
		}
		convert(g, obj, bound)
		return true
	})
	g.Expect(rest).To(HaveLen(len(all)))
	for i := range rest {
		if rest[i].GetKind() != "Deployment" {
			g.Expect(all[i]).To(Equal(rest[i]))
		}
	}

	watched := objects(t, filepath.Join(folder, "watched-namespace.yaml"), values)
	g.Expect(apply(t.Context(), env.Client(t), watched)).To(Succeed())
	g.Expect(watched).To(HaveLen(1))
	binding := &rbacv1.RoleBinding{}
	convert(g, watched[0], binding)
	g.Expect(binding.Namespace).To(Equal(ns))
	g.Expect(binding.RoleRef).To(Equal(bound.RoleRef))
	g.Expect(binding.Subjects).To(Equal(bound.Subjects))
}

// The role that is bound in all namespaces, or in the watched one, has nothing but objects in
// namespaces, and the role for what has no namespace nothing else, but one ConfigMap of
// kube-system: clusterctl would put a Role for it into the provider's namespace. No role has a
// wildcard that permits to write.
func TestRolesAreNarrow(t *testing.T) {
	g := NewWithT(t)
	all := objects(t, filepath.Join(release(t), "infrastructure-components.yaml"), nil)
	known, roles := namespaced(g), 0
	// Subresources for finalizers exist for RBAC only.
	published := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"extension-apiserver-authentication"},
		Verbs: []string{"get", "list", "watch"},
	}
	isOther := func(resource string) bool { return resource == "*" || strings.HasSuffix(resource, "/finalizers") }
	for _, obj := range all {
		if obj.GetKind() != "ClusterRole" && obj.GetKind() != "Role" {
			continue
		}
		roles++
		role := &rbacv1.ClusterRole{}
		convert(g, obj, role)
		g.Expect(role.Rules).NotTo(BeEmpty(), role.Name)
		for _, rule := range role.Rules {
			g.Expect(rule.APIGroups).NotTo(ContainElement("*"))
			g.Expect(rule.Verbs).NotTo(ContainElement("*"))
			if slices.Contains(rule.Resources, "*") {
				g.Expect(rule.Verbs).To(ConsistOf("get", "list", "watch"))
			}
			if obj.GetName() == "elemental-manager-cluster-role" && reflect.DeepEqual(rule, published) {
				continue
			}
			for _, resource := range slices.DeleteFunc(rule.Resources, isOther) {
				for _, group := range rule.APIGroups {
					name := group + "/" + resource
					g.Expect(known).To(HaveKeyWithValue(name, obj.GetName() != "elemental-manager-cluster-role"), "of %s", obj.GetName())
				}
			}
		}
	}
	g.Expect(roles).To(Equal(4 + len(rolesForOthers())))
}

// namespaced returns whether the API server's kinds are in namespaces, by group and resource.
// Subresources are in it too.
func namespaced(g Gomega) map[string]bool {
	client, err := discovery.NewDiscoveryClientForConfig(env.Config)
	g.Expect(err).NotTo(HaveOccurred())
	_, lists, err := client.ServerGroupsAndResources()
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		g.Expect(err).NotTo(HaveOccurred())
		for _, r := range list.APIResources {
			found[version.Group+"/"+r.Name] = r.Namespaced
		}
	}
	return found
}

// The policy selects the manager's Pod, and all ports that others connect to.
func TestNetworkPolicy(t *testing.T) {
	g := NewWithT(t)
	folder := release(t)
	all := objects(t, filepath.Join(folder, "network-policy.yaml"), map[string]string{
		"ELEMENTAL_API_SERVER_CIDR": "192.0.2.0/28", "ELEMENTAL_NAMESPACE": env.Namespace(t),
	})
	g.Expect(apply(t.Context(), env.Client(t), all)).To(Succeed())
	g.Expect(all).To(HaveLen(1))
	policy := &networkingv1.NetworkPolicy{}
	convert(g, all[0], policy)

	template := deployment(g, objects(t, filepath.Join(folder, "infrastructure-components.yaml"), nil)).Spec.Template
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(selector.Matches(labels.Set(template.Labels))).To(BeTrue())

	admitted := map[string]bool{}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			admitted[port.Port.StrVal] = len(rule.From) == 0
		}
	}
	g.Expect(admitted).To(Equal(map[string]bool{"webhook-server": true, "agent-api": true, "gateway-proxy": true, "gateway": false, "metrics": false}), "true: from everywhere")
	for _, rule := range policy.Spec.Ingress {
		if rule.Ports[0].Port.StrVal != "gateway" {
			continue
		}
		g.Expect(rule.From).To(HaveLen(1))
		pods, err := metav1.LabelSelectorAsSelector(rule.From[0].PodSelector)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Matches(labels.Set{"cluster.x-k8s.io/provider": "control-plane-kubeadm"})).To(BeTrue())
		g.Expect(pods.Matches(labels.Set{"app": "another"})).To(BeFalse())
	}
	for name := range admitted {
		g.Expect(template.Spec.Containers[0].Ports).To(ContainElement(HaveField("Name", name)))
	}
	g.Expect(policy.Spec.Egress).To(HaveLen(1))
	for _, peer := range policy.Spec.Egress[0].To {
		g.Expect(peer.IPBlock.CIDR).To(BeElementOf("192.0.2.0/28", "10.96.0.1/32"))
	}
	g.Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
}
