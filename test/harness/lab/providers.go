package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
)

// repository returns clusterctl's repository of the lab, which need not be written.
func (c *commands) repository(ctx context.Context, module capiModule) (repository.Repository, error) {
	tools, err := c.Tools(ctx)
	if err != nil {
		return repository.Repository{}, err
	}
	return repository.Repository{
		Root: filepath.Join(c.state, "repository"), Version: module.version, Module: module.folder, Kubectl: filepath.Join(tools, "kubectl"),
	}, nil
}

// writeRepository writes clusterctl's repository with a release of this provider, unless that is
// the zero value, and clusterctl's configuration.
func (c *commands) writeRepository(ctx context.Context, module capiModule, own release, variables map[string]string) error {
	r, err := c.repository(ctx, module)
	if err != nil {
		return err
	}
	if err := r.Write(ctx); err != nil {
		return err
	}
	if own.folder != "" {
		if err := addRelease(r, own); err != nil {
			return err
		}
	}
	return writeFile(c.ClusterctlConfig(), []byte(clusterctlConfig(r, own, variables)))
}

// addRelease copies a release of this provider into clusterctl's repository, in place of one with the same version.
func addRelease(r repository.Repository, own release) error {
	folder := filepath.Join(r.Root, repository.Elemental().Label, own.version)
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("emptying the repository: %w", err)
	}
	if err := os.CopyFS(folder, os.DirFS(own.folder)); err != nil {
		return fmt.Errorf("copying the release: %w", err)
	}
	return nil
}

// clusterctlConfig returns clusterctl's configuration.
func clusterctlConfig(r repository.Repository, own release, variables map[string]string) string {
	var text strings.Builder
	text.WriteString("providers:\n" + r.Providers())
	if own.folder != "" {
		text.WriteString(r.Entry(repository.Elemental(), own.version))
	}
	text.WriteString("cert-manager:\n  externallyProvisioned: \"true\"\n")
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(&text, "%s: %q\n", name, variables[name])
	}
	return text.String()
}

func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	return nil
}
