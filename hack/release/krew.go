package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
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

// platform is a system and an architecture of Go, and the archive for it.
type platform struct {
	System, Architecture, URI, SHA256 string
}

// krew is the plugin's manifest for krew.
func (r release) krew() string { return filepath.Join(r.folder, "krew-elemental.yaml") }

// pluginArchive is the archive with the plugin for a system.
func (r release) pluginArchive(system, architecture string) string {
	return filepath.Join(r.folder, fmt.Sprintf("%s_%s_%s_%s.tar.gz", plugin, r.version, system, architecture))
}

// packPlugin writes the archives of the plugin for macOS. Those for Linux are there already.
func (b *builder) packPlugin(r release, work string, at time.Time) error {
	for _, architecture := range architectures() {
		if err := archive.WriteGzip(r.pluginArchive("darwin", architecture), []archive.File{
			{Name: plugin, Mode: 0o755, Path: builtFor(work, plugin, "darwin", architecture)},
			{Name: "LICENSE", Mode: 0o644, Path: filepath.Join(b.root, "LICENSE")},
		}, at); err != nil {
			return fmt.Errorf("packing %s for macOS: %w", plugin, err)
		}
	}
	text, err := r.renderKrew()
	if err != nil {
		return err
	}
	return os.WriteFile(r.krew(), text, 0o644)
}

// renderKrew makes the manifest from the archives in the folder.
func (r release) renderKrew() ([]byte, error) {
	var platforms []platform
	for _, system := range []string{"linux", "darwin"} {
		for _, architecture := range architectures() {
			file := r.pluginArchive(system, architecture)
			sum, err := checksums.Sum(file)
			if err != nil {
				return nil, err
			}
			uri := fmt.Sprintf("%s/releases/download/%s/%s", home, r.version, filepath.Base(file))
			platforms = append(platforms, platform{system, architecture, uri, sum})
		}
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

// verifyKrew compares the manifest with the archives, and checks that these have the plugin.
func (r release) verifyKrew() error {
	want, err := r.renderKrew()
	if err != nil {
		return err
	}
	got, err := os.ReadFile(r.krew())
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s is not what follows from the archives of the plugin", filepath.Base(r.krew()))
	}
	for _, architecture := range architectures() {
		_, missing := readProgram(r.pluginArchive("darwin", architecture), plugin)
		err = errors.Join(err, missing)
	}
	return err
}
