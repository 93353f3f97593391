package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestKrewManifest does what krew does with the manifest: it takes the archive, compares the
// digest, unpacks it and runs the program.
func TestKrewManifest(t *testing.T) {
	r := small(t)
	text, err := os.ReadFile(r.krew())
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				Selector struct {
					MatchLabels map[string]string `yaml:"matchLabels"`
				}
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Metadata.Name != "elemental" || manifest.Spec.Version != r.version {
		t.Errorf("got plugin %q of version %q", manifest.Metadata.Name, manifest.Spec.Version)
	}
	ran := false
	for _, platform := range manifest.Spec.Platforms {
		file := filepath.Join(r.folder, path.Base(platform.URI))
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != platform.SHA256 {
			t.Errorf("%s has another digest than the manifest", file)
		}
		program := filepath.Join(unpackArchive(t, file), filepath.FromSlash(platform.Bin))
		if _, err := os.Stat(program); err != nil {
			t.Errorf("the archive has no %s: %v", platform.Bin, err)
		}
		if labels := platform.Selector.MatchLabels; labels["os"] != runtime.GOOS || labels["arch"] != runtime.GOARCH {
			continue
		}
		ran = true
		if out, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput(); err != nil {
			t.Errorf("running the program: %v\n%s", err, out)
		}
	}
	if !ran {
		t.Errorf("the manifest has no program for %s/%s:\n%s", runtime.GOOS, runtime.GOARCH, text)
	}
}

// unpackArchive unpacks the files of a compressed archive with their modes, and returns the folder.
func unpackArchive(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return folder
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(folder, filepath.Clean("/"+header.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, header.FileInfo().Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}
