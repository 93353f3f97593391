package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

const (
	providerModule   = "github.com/capi-elemental/cluster-api-provider-elemental"
	clusterAPIModule = "sigs.k8s.io/cluster-api"
)

// sources has the programs and the source folders of a cluster.
type sources struct {
	// tools is the folder of the programs of test/tools, manager the file of this provider's manager.
	tools, manager string
	// checkout is the folder of this repository, clusterAPI that of the Cluster API module of the tools.
	checkout, clusterAPI string
}

// program returns the file of a program of test/tools.
func (s *sources) program(name string) string { return filepath.Join(s.tools, name) }

// prepare builds missing programs and creates the cluster's folders.
func (c *Cluster) prepare(ctx context.Context) error {
	for _, name := range []string{"logs", "etcd", "pki"} {
		if err := os.Mkdir(filepath.Join(c.Folder, name), 0o700); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
	}
	s := &sources{checkout: c.options.Checkout, manager: c.options.Manager}
	var err error
	if s.checkout == "" {
		if s.checkout, err = moduleFolder(ctx, "", providerModule); err != nil {
			return err
		}
	}
	modules := filepath.Join(s.checkout, "test", "tools")
	if s.clusterAPI, err = moduleFolder(ctx, filepath.Join(modules, "cluster-api"), clusterAPIModule); err != nil {
		return err
	}
	if s.tools, err = c.buildTools(ctx, modules); err != nil {
		return err
	}
	if s.manager == "" {
		if s.manager, err = c.buildManager(ctx, s.checkout); err != nil {
			return err
		}
	}
	c.sources = s
	return nil
}

// buildTools returns the folder with the programs of other projects.
func (c *Cluster) buildTools(ctx context.Context, modules string) (string, error) {
	tools, err := toolset.Select("etcd", "etcdutl", "kube-apiserver", "kube-controller-manager", "kubectl",
		"capi-core", "capi-kubeadm-bootstrap", "capi-kubeadm-control-plane")
	if err != nil {
		return "", fmt.Errorf("selecting programs: %w", err)
	}
	cache, err := toolset.CacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache of programs: %w", err)
	}
	folder, err := toolset.Builder{Modules: modules, Cache: cache, Progress: c.progress}.Folder(ctx, tools...)
	if err != nil {
		return "", fmt.Errorf("building programs: %w", err)
	}
	return folder, nil
}

// buildManager builds this provider's manager into a folder of its own in the cluster's folder, because its sources may
// change meanwhile.
func (c *Cluster) buildManager(ctx context.Context, checkout string) (string, error) {
	folder, err := os.MkdirTemp(c.Folder, "manager-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the manager: %w", err)
	}
	file := filepath.Join(folder, "manager")
	tags := ""
	if c.options.Simulation {
		tags = "simulation"
	}
	_, err = shell.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-tags", tags, "-o", file, "./cmd/manager"},
		Dir:  checkout, Env: []string{"CGO_ENABLED=0"},
	}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("building the manager: %w", err)
	}
	return file, nil
}

// render returns the objects of a kustomization.
func (s *sources) render(ctx context.Context, folder string) ([]byte, error) {
	out, err := shell.Run(ctx, s.program("kubectl"), "kustomize", folder)
	if err != nil {
		return nil, fmt.Errorf("rendering manifests: %w", err)
	}
	return []byte(out), nil
}

// moduleFolder returns the folder of a module, as resolved from another folder.
func moduleFolder(ctx context.Context, from, module string) (string, error) {
	out, err := shell.Command{Args: []string{"go", "list", "-m", "-f", "{{.Dir}}", module}, Dir: from}.Run(ctx)
	if err == nil && out == "" {
		err = errors.New("go has not downloaded it: run go mod download there")
	}
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	return out, nil
}
