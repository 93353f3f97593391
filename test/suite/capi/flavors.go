package capi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// hostLabels is the value of hostSelector.matchLabels in this provider's templates. kustomize can't read it, because it
// is valid YAML only with the values of clusterctl's variables. The specs set no labels of hosts.
var hostLabels = regexp.MustCompile(`\{\$\{[A-Z_]+_HOST_LABELS:= \}\}`)

// AddFlavors adds what the specs need to a folder with a release of this provider: it renders the kustomizations in the
// folder flavors whose names begin with "cluster". The resources of a kustomization are templates of the release, and
// the result has the name of the kustomization's folder. kubectl is the program that renders.
func AddFlavors(ctx context.Context, kubectl, release string) error {
	folder, err := os.MkdirTemp("", "flavors-")
	if err != nil {
		return fmt.Errorf("making a folder for flavors: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := os.CopyFS(folder, os.DirFS("flavors")); err != nil {
		return fmt.Errorf("copying the flavors: %w", err)
	}
	kustomizations, err := filepath.Glob(filepath.Join(folder, "cluster*"))
	if err != nil {
		return fmt.Errorf("listing the flavors: %w", err)
	}
	for _, kustomization := range kustomizations {
		if err := copyTemplates(release, kustomization); err != nil {
			return err
		}
	}
	for _, kustomization := range kustomizations {
		name := filepath.Base(kustomization)
		rendered, err := shell.Run(ctx, kubectl, "kustomize", kustomization)
		if err != nil {
			return fmt.Errorf("rendering %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(release, name+".yaml"), []byte(rendered), 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// copyTemplates copies the templates of a release, in a form that kustomize reads.
func copyTemplates(release, folder string) error {
	templates, err := filepath.Glob(filepath.Join(release, "cluster*.yaml"))
	if err != nil {
		return fmt.Errorf("listing the templates of the release: %w", err)
	}
	for _, template := range templates {
		content, err := os.ReadFile(template)
		if err != nil {
			return fmt.Errorf("reading a template of the release: %w", err)
		}
		text := hostLabels.ReplaceAllString(string(content), "{}")
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(template)), []byte(text), 0o600); err != nil {
			return fmt.Errorf("copying %s: %w", strings.TrimPrefix(template, release), err)
		}
	}
	return nil
}
