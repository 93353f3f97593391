package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/checksums"
)

const (
	plugin = "kubectl-elemental"
	// home is where the sources and the releases are.
	home = "https://github.com/capi-elemental/" + project
)

// krewManifest is the template of the plugin's manifest for krew, the manager of kubectl's plugins.
//
//go:embed krew.yaml.tmpl
var krewManifest string

// platform is an architecture of Go, and the archive with the plugin for Linux on it.
type platform struct {
	Architecture, URI, SHA256 string
}

// krew is the plugin's manifest for krew.
func (r release) krew() string { return filepath.Join(r.folder, "krew-elemental.yaml") }

// writeKrew writes the plugin's manifest for krew.
func (r release) writeKrew() error {
	text, err := r.renderKrew()
	if err != nil {
		return err
	}
	return os.WriteFile(r.krew(), text, 0o644)
}

// renderKrew makes the manifest from the archives in the folder.
func (r release) renderKrew() ([]byte, error) {
	var platforms []platform
	for _, architecture := range architectures() {
		file := r.archive(plugin, architecture)
		sum, err := checksums.Sum(file)
		if err != nil {
			return nil, err
		}
		uri := fmt.Sprintf("%s/releases/download/%s/%s", home, r.version, filepath.Base(file))
		platforms = append(platforms, platform{architecture, uri, sum})
	}
	manifest, err := template.New("krew").Parse(krewManifest)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest for krew: %w", err)
	}
	var text bytes.Buffer
	if err := manifest.Execute(&text, map[string]any{"Version": r.version, "Home": home, "Program": plugin, "Platforms": platforms}); err != nil {
		return nil, fmt.Errorf("writing the manifest for krew: %w", err)
	}
	return text.Bytes(), nil
}

// verifyKrew compares the manifest with the archives.
func (r release) verifyKrew() error {
	want, err := r.renderKrew()
	if err != nil {
		return err
	}
	got, err := os.ReadFile(r.krew())
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s is not what follows from the archives of the plugin", filepath.Base(r.krew()))
	}
	return err
}
