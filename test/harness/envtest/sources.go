package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

const (
	providerModule   = "github.com/capi-elemental/cluster-api-provider-elemental"
	clusterAPIModule = "sigs.k8s.io/cluster-api"
	// contractLabel names the version of a CRD that Cluster API uses.
	contractLabel = "cluster.x-k8s.io/v1beta2"
)

// unused are kinds of Cluster API that no test of this provider has: classes of clusters, what only they refer to, and
// add-ons. Their schemas are a third of all, and every start pays for them.
func unused() []string {
	return []string{
		"addons.cluster.x-k8s.io_*", "cluster.x-k8s.io_clusterclasses.yaml",
		"controlplane.cluster.x-k8s.io_kubeadmcontrolplanetemplates.yaml",
	}
}

// moduleDirs has the folders of the modules with CRDs.
type moduleDirs struct {
	provider, clusterAPI string
}

// findModules locates the modules with go, so it works from any package of this module
// and from any module that requires it.
func findModules(ctx context.Context) (moduleDirs, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", providerModule, clusterAPIModule).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return moduleDirs{}, fmt.Errorf("finding the folders of modules: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 {
		return moduleDirs{}, fmt.Errorf("finding the folders of modules: expected two, got %q", lines)
	}
	return moduleDirs{provider: lines[0], clusterAPI: lines[1]}, nil
}

// crdFolders lists the folders with generated CRDs.
func (d moduleDirs) crdFolders() []string {
	folders := []string{filepath.Join(d.provider, "config", "crd", "bases")}
	for _, part := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm"} {
		folders = append(folders, filepath.Join(d.clusterAPI, part, "config", "crd", "bases"))
	}
	return folders
}

// readCRDs reads the CRDs that tests use, with the stored version only, and completes those of Cluster API, whose
// generated files lack the contract label that its kustomize files add.
func readCRDs(folders []string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", folder, err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("listing %s: no CRDs; run make generate", folder)
		}
		for _, file := range slices.DeleteFunc(files, isUnused) {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("reading a CRD: %w", err)
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict(text, crd); err != nil {
				return nil, fmt.Errorf("parsing %s: %w", file, err)
			}
			if crd.Labels == nil {
				crd.Labels = map[string]string{}
			}
			if _, ok := crd.Labels[contractLabel]; !ok {
				crd.Labels[contractLabel] = "v1beta2"
			}
			// Former versions double the schemas, and Cluster API's webhook, which converts them, does not run.
			crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Storage })
			crds = append(crds, crd)
		}
	}
	return crds, nil
}

func isUnused(file string) bool {
	return slices.ContainsFunc(unused(), func(pattern string) bool {
		matches, err := filepath.Match(pattern, filepath.Base(file))
		return err == nil && matches
	})
}

// findPrograms returns the folder with etcd and kube-apiserver.
func findPrograms(ctx context.Context, checkout string) (string, error) {
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		return folder, nil
	}
	tools, err := toolset.Select("etcd", "kube-apiserver")
	if err != nil {
		return "", fmt.Errorf("selecting programs: %w", err)
	}
	cache, err := toolset.CacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache of programs: %w", err)
	}
	folder, err := toolset.Builder{
		Modules: filepath.Join(checkout, "test", "tools"), Cache: cache, Progress: os.Stderr,
	}.Folder(ctx, tools...)
	if err != nil {
		return "", fmt.Errorf("building programs: %w", err)
	}
	return folder, nil
}
