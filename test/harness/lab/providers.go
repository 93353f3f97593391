package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// provider is a Cluster API provider as clusterctl sees it.
type provider struct {
	// name and kind are clusterctl's, such as kubeadm and BootstrapProvider.
	name, kind string
	// label is the folder clusterctl expects, such as bootstrap-kubeadm.
	label string
	// components is the file name of its manifests.
	components string
	// config is the folder of its kustomization inside the cluster-api module.
	config string
	// tool is the program; image is the name of its image, which the manifests have with another registry and tag.
	tool, image string
}

// upstream returns the providers that come from the cluster-api module.
func upstream() []provider {
	return []provider{
		{
			name: "cluster-api", kind: "CoreProvider", label: "cluster-api", components: "core-components.yaml",
			config: "core/config/default", tool: "capi-core", image: "cluster-api-controller",
		},
		{
			name: "kubeadm", kind: "BootstrapProvider", label: "bootstrap-kubeadm", components: "bootstrap-components.yaml",
			config: "bootstrap/kubeadm/config/default", tool: "capi-kubeadm-bootstrap", image: "kubeadm-bootstrap-controller",
		},
		{
			name: "kubeadm", kind: "ControlPlaneProvider", label: "control-plane-kubeadm",
			components: "control-plane-components.yaml", config: "controlplane/kubeadm/config/default",
			tool: "capi-kubeadm-control-plane", image: "kubeadm-control-plane-controller",
		},
	}
}

// elemental returns this provider.
func elemental() provider {
	return provider{
		name: "elemental", kind: "InfrastructureProvider", label: "infrastructure-elemental",
		components: "infrastructure-components.yaml",
	}
}

const (
	stagingRegistry = "gcr.io/k8s-staging-cluster-api"
	registry        = "registry.k8s.io/cluster-api"
)

// clusterctlConfig returns clusterctl's configuration.
func clusterctlConfig(root string, providers []provider, versions, variables map[string]string) string {
	var text strings.Builder
	text.WriteString("providers:\n")
	for _, p := range providers {
		fmt.Fprintf(&text, "  - name: %s\n    type: %s\n    url: file://%s\n", p.name, p.kind,
			filepath.Join(root, p.label, versions[p.label], p.components))
	}
	text.WriteString("cert-manager:\n  externallyProvisioned: \"true\"\n")
	names := make([]string, 0, len(variables))
	for name := range variables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
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
