package repository

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/certs"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Repository is a folder that clusterctl reads.
type Repository struct {
	// Root is the folder.
	Root string
	// Version is the version of Cluster API, and Module the folder of its Go module.
	Version, Module string
	// Kubectl is the program that renders kustomizations.
	Kubectl string
}

// Names of the stand-in for cert-manager. clusterctl wants a version.
const (
	certManager           = "cert-manager"
	certManagerVersion    = "v1.0.0"
	certManagerComponents = "cert-manager.yaml"
)

// Write writes Cluster API's providers and the stand-in for cert-manager.
func (r Repository) Write(ctx context.Context) error {
	metadata, err := os.ReadFile(filepath.Join(r.Module, "metadata.yaml"))
	if err != nil {
		return fmt.Errorf("reading the metadata of Cluster API: %w", err)
	}
	for _, provider := range Upstream(r.Version) {
		manifests, err := shell.Run(ctx, r.Kubectl, "kustomize", filepath.Join(r.Module, provider.config))
		if err != nil {
			return fmt.Errorf("rendering %s: %w", provider.Label, err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(provider.Image, registry), ":"+r.Version)
		manifests = strings.NewReplacer(
			stagingRegistry+name+":main", provider.Image,
			"imagePullPolicy: Always", "imagePullPolicy: IfNotPresent",
		).Replace(manifests)
		folder := filepath.Join(r.Root, provider.Label, r.Version)
		if err := write(filepath.Join(folder, provider.Components), []byte(manifests)); err != nil {
			return err
		}
		if err := write(filepath.Join(folder, "metadata.yaml"), metadata); err != nil {
			return err
		}
	}
	return write(filepath.Join(r.Root, certManager, certManagerVersion, certManagerComponents), []byte(certs.Manifests()))
}

// Providers returns the entries of Cluster API's providers in the list "providers" of
// clusterctl.yaml.
func (r Repository) Providers() string {
	var text strings.Builder
	for _, provider := range Upstream(r.Version) {
		text.WriteString(r.Entry(provider, r.Version))
	}
	return text.String()
}

// Entry returns the entry of a provider whose release is in the folder.
func (r Repository) Entry(provider Provider, version string) string {
	return fmt.Sprintf("  - name: %s\n    type: %s\n    url: file://%s\n", provider.Name, provider.Kind,
		filepath.Join(r.Root, provider.Label, version, provider.Components))
}

// CertManager returns the section of clusterctl.yaml by which clusterctl installs the stand-in for
// cert-manager.
func (r Repository) CertManager() string {
	return fmt.Sprintf("%s:\n  url: file://%s\n  version: %s\n", certManager,
		filepath.Join(r.Root, certManager, certManagerVersion, certManagerComponents), certManagerVersion)
}

func write(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	return nil
}
