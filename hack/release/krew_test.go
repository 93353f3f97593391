package main

import (
	"crypto/sha256"
	"encoding/hex"
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
		folder := t.TempDir()
		if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", file, "-C", folder).CombinedOutput(); err != nil {
			t.Fatalf("unpacking %s: %v\n%s", file, err, out)
		}
		program := filepath.Join(folder, filepath.FromSlash(platform.Bin))
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
