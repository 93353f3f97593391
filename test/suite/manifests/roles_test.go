package manifests_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
)

// rolesForOthers are the ClusterRoles that the provider does not use itself, with the labels by
// which they become part of others.
func rolesForOthers() map[string][]string {
	return map[string][]string{
		"elemental-view":          {"rbac.authorization.k8s.io/aggregate-to-view"},
		"elemental-edit":          {"rbac.authorization.k8s.io/aggregate-to-edit"},
		"elemental-admin":         {"rbac.authorization.k8s.io/aggregate-to-admin"},
		"elemental-host-operator": nil,
		"elemental-cluster-api":   {"cluster.x-k8s.io/aggregate-to-manager", "kubeadm.controlplane.cluster.x-k8s.io/aggregate-to-manager"},
	}
}

// releasedRoles returns the ClusterRoles of the release by name.
func releasedRoles(t *testing.T) map[string]*rbacv1.ClusterRole {
	t.Helper()
	found := map[string]*rbacv1.ClusterRole{}
	for _, obj := range objects(t, filepath.Join(release(t), "infrastructure-components.yaml"), nil) {
		if obj.GetKind() == "ClusterRole" {
			role := &rbacv1.ClusterRole{}
			convert(NewWithT(t), obj, role)
			found[role.Name] = role
		}
	}
	return found
}

// permits reports whether a role has the verb on a resource of this provider.
func permits(role *rbacv1.ClusterRole, verb, resource string) bool {
	return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, infrav1.GroupVersion.Group) && slices.Contains(r.Verbs, verb) && slices.Contains(r.Resources, resource)
	})
}

// The roles for users are part of those that Kubernetes has, and nothing else makes a role part of
// another: whoever may approve hosts was given that by name.
func TestThreat82_RolesBecomePartOfOthersOnPurpose(t *testing.T) {
	g := NewWithT(t)
	roles := releasedRoles(t)
	for name, labels := range rolesForOthers() {
		g.Expect(roles).To(HaveKey(name))
		var aggregated []string
		for label, value := range roles[name].Labels {
			if strings.Contains(label, "aggregate-to-") {
				g.Expect(value).To(Equal("true"))
				aggregated = append(aggregated, label)
			}
		}
		g.Expect(aggregated).To(ConsistOf(labels), name)
	}
}

// A refusal names the roles that have the verb. No other role for users has it.
func TestThreat82_RolesHaveTheVerbsThatRefusalsName(t *testing.T) {
	roles := releasedRoles(t)
	for _, verb := range rights.All() {
		for _, name := range []string{"elemental-view", "elemental-edit", "elemental-admin", "elemental-host-operator"} {
			t.Run(string(verb)+" "+name, func(t *testing.T) {
				NewWithT(t).Expect(permits(roles[name], string(verb), "elementalhosts")).To(Equal(slices.Contains(verb.Roles(), name)))
			})
		}
	}
	for _, resource := range []string{"elementalmachines", "elementalmachinetemplates"} {
		for _, verb := range []rights.Verb{rights.Erase, rights.Install} {
			for _, name := range verb.Roles() {
				NewWithT(t).Expect(permits(roles[name], string(verb), resource)).To(BeTrue(), "%s: %s %s", name, verb, resource)
			}
		}
	}
}

// Nobody reads Secrets by the roles for users, and tenants create neither hosts nor what hosts
// install.
func TestThreat82_RolesOfTenantsAreNarrow(t *testing.T) {
	g := NewWithT(t)
	roles := releasedRoles(t)
	for name := range rolesForOthers() {
		for _, rule := range roles[name].Rules {
			g.Expect(rule.APIGroups).To(ConsistOf(infrav1.GroupVersion.Group), name)
			g.Expect(rule.Resources).NotTo(ContainElement("*"), name)
			for _, resource := range rule.Resources {
				g.Expect(resource).NotTo(ContainSubstring("/"), "%s writes no status", name)
			}
		}
	}
	for _, name := range []string{"elemental-view", "elemental-edit", "elemental-admin"} {
		for _, resource := range []string{"elementalhosts", "elementalregistrations", "elementalkubernetesreleases"} {
			g.Expect(permits(roles[name], "create", resource)).To(BeFalse(), "%s: %s", name, resource)
			g.Expect(permits(roles[name], "delete", resource)).To(BeFalse(), "%s: %s", name, resource)
		}
	}
	kinds := 0
	for _, obj := range objects(t, filepath.Join(release(t), "infrastructure-components.yaml"), nil) {
		if obj.GetKind() != "CustomResourceDefinition" {
			continue
		}
		kinds++
		plural, _, err := unstructured.NestedString(obj.Object, "spec", "names", "plural")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(permits(roles["elemental-view"], "list", plural)).To(BeTrue(), "view reads %s", plural)
	}
	g.Expect(kinds).To(Equal(11))
}

// A registration decides which programs hosts run as root, and which management cluster they follow
// to. Tenants only read it.
func TestThreat91_TenantsNameNoSuccessor(t *testing.T) {
	g := NewWithT(t)
	roles := releasedRoles(t)
	for _, name := range []string{"elemental-view", "elemental-edit", "elemental-admin"} {
		for _, verb := range []string{"create", "update", "patch"} {
			g.Expect(permits(roles[name], verb, "elementalregistrations")).To(BeFalse(), "%s may %s registrations", name, verb)
		}
	}
}

// The webhook of restores is required for what begins one, and for nothing else: a removed manager
// keeps nobody from labelling it or from removing a finalizer.
func TestThreat82_NoRestoreIsUnreviewed(t *testing.T) {
	g := NewWithT(t)
	admin, ns := env.Client(t), env.Namespace(t)
	newRestore := func() *infrav1.ElementalEtcdRestore {
		return &infrav1.ElementalEtcdRestore{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: ns, Finalizers: []string{"test/hold"}},
			Spec: infrav1.ElementalEtcdRestoreSpec{
				ClusterName: "c", Source: infrav1.EtcdRestoreSource{Snapshot: &infrav1.EtcdRestoreSnapshot{HostName: "h", ID: "s"}},
			},
		}
	}
	restore := newRestore()
	g.Expect(admin.Create(t.Context(), restore)).To(Succeed())
	requireWebhook(t, "rights.elementaletcdrestore.infrastructure.cluster.x-k8s.io")
	g.Eventually(func() error { return admin.Create(t.Context(), newRestore(), client.DryRunAll) }).WithTimeout(time.Minute).
		Should(MatchError(ContainSubstring("failed calling webhook")))

	for name, tc := range map[string]struct {
		change  func(r *infrav1.ElementalEtcdRestore)
		refused bool
	}{
		"confirmation": {func(r *infrav1.ElementalEtcdRestore) { r.Spec.Confirm = "c" }, true},
		"permission":   {func(r *infrav1.ElementalEtcdRestore) { r.Spec.ReplaceHealthy = new(true) }, true},
		"request": {func(r *infrav1.ElementalEtcdRestore) {
			r.Spec.Request = &infrav1.EtcdRestoreRequest{ID: "1", SHA256: strings.Repeat("ab", 32)}
		}, true},
		"label":     {func(r *infrav1.ElementalEtcdRestore) { r.Labels = map[string]string{"a": "b"} }, false},
		"finalizer": {func(r *infrav1.ElementalEtcdRestore) { r.Finalizers = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := restore.DeepCopy()
			tc.change(changed)
			expectRefusal(t, admin.Update(t.Context(), changed.DeepCopy(), client.DryRunAll), tc.refused)
			expectRefusal(t, clientAs(t, "system:serviceaccount:"+namespace+":elemental-manager").Update(t.Context(), changed.DeepCopy(), client.DryRunAll), false)
		})
	}
}
