package image_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/image"
)

// write writes an image whose programs have the text given, and returns its archive.
func write(t *testing.T, text string, architectures ...string) string {
	t.Helper()
	folder := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text+" "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	programs := map[string]string{}
	for _, architecture := range architectures {
		programs[architecture] = file(architecture)
	}
	out := filepath.Join(folder, "image.oci.tar")
	if err := image.Write(out, image.Options{
		Name: "registry.example.com/manager:v1.2.3", Time: time.Unix(1_700_000_000, 0).UTC(), Programs: programs,
		Shared: map[string]string{"agents/agent": file("agent")}, Labels: map[string]string{"a": "b"},
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t *testing.T, file string) *image.Image {
	t.Helper()
	img, err := image.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := img.Close(); err != nil {
			t.Error(err)
		}
	})
	return img
}

func TestWrite(t *testing.T) {
	file := write(t, "text", "amd64", "arm64")
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(write(t, "text", "amd64", "arm64"))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("two archives of one image differ: %v", err)
	}
	img := open(t, file)
	if err := img.Check("amd64", "arm64"); err != nil {
		t.Error(err)
	}
	if img.Name != "registry.example.com/manager:v1.2.3" {
		t.Errorf("got name %s", img.Name)
	}
	for name, want := range map[string]string{"manager": "text arm64", "agents/agent": "text agent"} {
		if got, err := img.File("arm64", name); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, not %q", name, got, err, want)
		}
	}
	if _, err := img.File("arm64", "bin/sh"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
}

func TestCheck(t *testing.T) {
	img := open(t, write(t, "text", "amd64"))
	if err := img.Check("amd64", "arm64"); err == nil || !strings.Contains(err.Error(), "1 platforms, not 2") {
		t.Errorf("got error %v", err)
	}
	if err := img.Check("arm64"); err == nil || !strings.Contains(err.Error(), "not for linux/arm64") {
		t.Errorf("got error %v", err)
	}
	if _, err := image.Open(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
}

// A changed blob is found, although the archive can be unpacked.
func TestCheckFindsOtherContent(t *testing.T) {
	file := write(t, "text", "amd64")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(content, []byte(`"Entrypoint":["/manager"]`), []byte(`"Entrypoint":["/manageR"]`), 1)
	if bytes.Equal(changed, content) {
		t.Fatal("the configuration is not where the test looks for it")
	}
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, file).Check("amd64"); err == nil || !strings.Contains(err.Error(), "has the digest") {
		t.Errorf("got error %v", err)
	}
}

func TestPush(t *testing.T) {
	repository := startRegistry(t) + "/edge/manager"
	img := open(t, write(t, "text", "amd64", "arm64"))
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repetition changes nothing
		got, err := img.Push(t.Context(), repository, "v1.2.3")
		if want := repository + "@" + digest; err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	other := open(t, write(t, "other", "amd64", "arm64"))
	if _, err := other.Push(t.Context(), repository, "v1.2.3"); err == nil || !strings.Contains(err.Error(), "is already another image") {
		t.Errorf("got error %v", err)
	}
	if _, err := other.Push(t.Context(), "no registry", "v1.2.3"); err == nil {
		t.Error("what is no repository is accepted")
	}
}
