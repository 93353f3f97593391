//go:build embedded

package topology_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

const (
	release = "v0.1.99"
	version = "v1.35.4"
	newer   = "v1.36.3"
)

// rig is a management cluster, and clusterctl with a repository of this checkout's templates.
type rig struct {
	*WithT

	t          *testing.T
	admin      client.Client
	kubeconfig string
	clusterctl string
	config     string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := (&rig{}).in(t)
	management, err := embedded.Start(t.Context(), embedded.Options{Progress: t.Output()})
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := management.Stop(); err != nil {
			t.Errorf("stopping the management cluster: %v", err)
		}
	})
	r.kubeconfig = management.Kubeconfig
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme,
	} {
		r.Expect(add(scheme)).To(Succeed())
	}
	r.admin, err = client.New(management.Config, client.Options{Scheme: scheme})
	r.Expect(err).NotTo(HaveOccurred())
	r.clusterctl = r.tool("clusterctl")
	r.config = r.repository()
	return r
}

// in is the rig for a test that uses the same management cluster.
func (r *rig) in(t *testing.T) *rig {
	t.Helper()
	other := *r
	other.t, other.WithT = t, NewWithT(t)
	other.SetDefaultEventuallyTimeout(2 * time.Minute)
	return &other
}

func (r *rig) tool(name string) string {
	r.t.Helper()
	tools, err := toolset.Select(name)
	r.Expect(err).NotTo(HaveOccurred())
	cache, err := toolset.CacheDir()
	r.Expect(err).NotTo(HaveOccurred())
	folder, err := toolset.Builder{Modules: filepath.Join(root(), "test", "tools"), Cache: cache, Progress: r.t.Output()}.Folder(r.t.Context(), tools...)
	r.Expect(err).NotTo(HaveOccurred())
	return filepath.Join(folder, name)
}

// root is the folder of this repository.
func root() string { return filepath.Join("..", "..", "..") }

// repository makes a repository of clusterctl and returns the configuration that names it.
func (r *rig) repository() string {
	r.t.Helper()
	// clusterctl demands PROVIDER/VERSION/FILE at the end.
	folder := filepath.Join(r.t.TempDir(), "infrastructure-elemental", release)
	r.Expect(os.CopyFS(folder, os.DirFS(filepath.Join(root(), "templates")))).To(Succeed())
	metadata, err := os.ReadFile(filepath.Join(root(), "metadata.yaml"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(os.WriteFile(filepath.Join(folder, "metadata.yaml"), metadata, 0o600)).To(Succeed())
	config := filepath.Join(r.t.TempDir(), "clusterctl.yaml")
	text := "providers:\n  - name: elemental\n    type: InfrastructureProvider\n    url: file://" + filepath.Join(folder, "infrastructure-components.yaml") + "\n"
	r.Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	return config
}

// generate returns the objects that clusterctl makes of a flavor; blank is the default one. variables
// are NAME=value.
func (r *rig) generate(namespace, name, flavor string, variables ...string) []*unstructured.Unstructured {
	r.t.Helper()
	args := []string{
		"--config", r.config, "generate", "cluster", name, "--infrastructure", "elemental:" + release, "--target-namespace", namespace,
		"--kubeconfig", r.kubeconfig, "--kubernetes-version", version, "--control-plane-machine-count", "3", "--worker-machine-count", "2",
	}
	if flavor != "" {
		args = append(args, "--flavor", flavor)
	}
	cmd := exec.CommandContext(r.t.Context(), r.clusterctl, args...)
	cmd.Env = append(os.Environ(), append(variables, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	r.Expect(err).NotTo(HaveOccurred(), complaints.String())
	var all []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		r.Expect(err).NotTo(HaveOccurred())
		all = append(all, obj)
	}
}

// create creates objects as users do, with strict validation of fields.
func (r *rig) create(all []*unstructured.Unstructured, options ...client.CreateOption) {
	r.t.Helper()
	strict := client.WithFieldValidation(r.admin, metav1.FieldValidationStrict)
	for _, obj := range all {
		r.Expect(strict.Create(r.t.Context(), obj.DeepCopy(), options...)).To(Succeed(), "%s %s", obj.GetKind(), obj.GetName())
	}
}

func (r *rig) namespace() string {
	r.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	r.Expect(r.admin.Create(r.t.Context(), ns)).To(Succeed())
	return ns.Name
}
