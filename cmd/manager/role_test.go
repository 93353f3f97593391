package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

// managerUser is the user name of the manager's ServiceAccount.
const managerUser = "system:serviceaccount:" + defaultNamespace + ":elemental-manager"

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
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		r.Expect(yaml.Unmarshal(document, obj)).To(Succeed())
		if obj.GroupVersionKind().Group == rbacv1.GroupName {
			r.Expect(r.Admin.Create(r.Ctx, obj)).To(Succeed(), "%s %s", obj.GetKind(), obj.GetName())
		}
	}
	return env.AddUser(r.T, managerUser, "system:serviceaccounts", "system:serviceaccounts:"+defaultNamespace)
}
