package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	// managerAccount is the name of the manager's ServiceAccount, and managerUser its user name.
	managerAccount = "elemental-manager"
	managerUser    = "system:serviceaccount:" + defaultNamespace + ":" + managerAccount
)

// variable matches a variable of clusterctl, with its default if it has one.
var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+)(?::=([^}]*))?\}`)

// install creates the roles and bindings of a kustomization of the release, and returns a
// client configuration of the manager's ServiceAccount. Further files are applied as they are.
func (r *rig) install(env *envtest.Environment, config string, values map[string]string, files ...string) *rest.Config {
	r.T.Helper()
	root := filepath.Join("..", "..")
	kustomize := exec.CommandContext(r.Ctx, "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", config)
	kustomize.Dir = root
	manifests, err := kustomize.Output()
	r.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		manifests = append(manifests, "\n---\n"...)
		text, err := os.ReadFile(filepath.Join(root, file))
		r.Expect(err).NotTo(HaveOccurred())
		manifests = append(manifests, text...)
	}
	manifests = variable.ReplaceAllFunc(manifests, func(match []byte) []byte {
		parts := variable.FindSubmatch(match)
		if value, ok := values[string(parts[1])]; ok {
			return []byte(value)
		}
		return parts[2]
	})
	var created []*unstructured.Unstructured
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		r.Expect(yaml.Unmarshal(document, obj)).To(Succeed())
		if obj.GroupVersionKind().Group == rbacv1.GroupName {
			r.Expect(r.Admin.Create(r.Ctx, obj)).To(Succeed(), "%s %s", obj.GetKind(), obj.GetName())
			created = append(created, obj)
		}
	}
	manager := env.AddUser(r.T, managerUser, "system:serviceaccounts", "system:serviceaccounts:"+defaultNamespace)
	r.awaitBindings(manager, env, created)
	return manager
}

// awaitBindings waits until the bindings of the manager's ServiceAccount are in effect: the API
// server authorizes requests from a cache.
func (r *rig) awaitBindings(config *rest.Config, env *envtest.Environment, created []*unstructured.Unstructured) {
	r.T.Helper()
	manager, err := ctrlclient.New(config, env.ClientOptions())
	r.Expect(err).NotTo(HaveOccurred())
	awaited := 0
	for _, obj := range created {
		// A ClusterRoleBinding has the same fields.
		binding := &rbacv1.RoleBinding{}
		r.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, binding)).To(Succeed())
		of := slices.IndexFunc(created, func(role *unstructured.Unstructured) bool {
			return role.GetKind() == binding.RoleRef.Kind && role.GetName() == binding.RoleRef.Name &&
				(role.GetNamespace() == "" || role.GetNamespace() == binding.Namespace)
		})
		if of < 0 || !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == managerAccount }) {
			continue
		}
		role := &rbacv1.ClusterRole{}
		r.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(created[of].Object, role)).To(Succeed())
		rule := role.Rules[0]
		ask := authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: rule.Verbs[0]}
		if len(rule.ResourceNames) > 0 {
			ask.Name = rule.ResourceNames[0]
		}
		r.Eventually(func() bool { return may(r.Ctx, r.WithT, manager, binding.Namespace, ask) }).WithTimeout(soon).
			Should(BeTrue(), "%s %s", obj.GetKind(), obj.GetName())
		awaited++
	}
	r.Expect(awaited).NotTo(BeZero())
}
