package image_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/archive"
	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/image"
)

// startRegistry starts a registry and returns its address.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// serve pushes an image for the architectures to a registry.
func serve(t *testing.T, tag string, architectures ...string) {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for _, architecture := range architectures {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: randomImage(t, architecture), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	if err := remote.WriteIndex(parseTag(t, tag), index); err != nil {
		t.Fatal(err)
	}
}

func randomImage(t *testing.T, architecture string) v1.Image {
	t.Helper()
	img, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

func parseTag(t *testing.T, text string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(text)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

// copied copies images from a mirror, and returns the archive and what was said.
func copied(t *testing.T, mirror string, names ...string) (file, said string, err error) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "images.oci.tar")
	err = image.Copy(t.Context(), file, image.Copies{
		Names: names, Architectures: []string{"amd64", "arm64"}, Mirror: mirror, Time: time.Unix(1_700_000_000, 0).UTC(),
		Say: func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" },
	})
	return file, said, err
}

// Images go from their registries into an archive, and from there to the registry of a site, for
// the architectures of the release.
func TestCopy(t *testing.T) {
	mirror, site := startRegistry(t), startRegistry(t)
	serve(t, mirror+"/kube-vip/kube-vip:v1", "amd64", "arm64", "s390x")
	serve(t, mirror+"/jetstack/controller:v2", "amd64")
	if err := remote.Write(parseTag(t, mirror+"/plain:v3"), randomImage(t, "amd64")); err != nil {
		t.Fatal(err)
	}
	names := []string{"ghcr.io/kube-vip/kube-vip:v1", "quay.io/jetstack/controller:v2", "registry.k8s.io/plain:v3"}
	file, said, err := copied(t, mirror, append(names, names[0])...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Copying ghcr.io/kube-vip/kube-vip:v1 (1 of 3)", "quay.io/jetstack/controller:v2 is not there for [arm64]"} {
		if !strings.Contains(said, want) {
			t.Errorf("said %q, and not %q", said, want)
		}
	}
	set, err := image.OpenSet(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	if err := set.Check(names); err != nil {
		t.Error(err)
	}
	for range 2 { // a repetition changes nothing
		if err := set.Push(t.Context(), site+"/edge/", t.Logf); err != nil {
			t.Fatal(err)
		}
	}
	for tag, want := range map[string]int{"kube-vip:v1": 2, "controller:v2": 1} {
		index, err := remote.Index(parseTag(t, site+"/edge/"+tag))
		if err != nil {
			t.Fatal(err)
		}
		if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) != want {
			t.Errorf("%s has %v, %v", tag, manifest, err)
		}
	}
	if _, err := remote.Image(parseTag(t, site+"/edge/plain:v3")); err != nil {
		t.Error(err)
	}
}

// A tag at the site that somebody else has pushed is not moved.
func TestPushLeavesOtherImages(t *testing.T) {
	mirror, site := startRegistry(t), startRegistry(t)
	serve(t, mirror+"/a:v1", "amd64", "arm64")
	serve(t, site+"/a:v1", "arm64")
	file, _, err := copied(t, mirror, "registry.k8s.io/a:v1")
	if err != nil {
		t.Fatal(err)
	}
	set, err := image.OpenSet(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	said := ""
	if err := set.Push(t.Context(), site, func(format string, args ...any) { said += fmt.Sprintf(format, args...) }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said, "is already another image") {
		t.Errorf("said %q", said)
	}
	index, err := remote.Index(parseTag(t, site+"/a:v1"))
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) != 1 {
		t.Errorf("the tag was moved: %v, %v", manifest, err)
	}
}

func TestCopyRefuses(t *testing.T) {
	mirror := startRegistry(t)
	serve(t, mirror+"/s390x:v1", "s390x")
	for name, tt := range map[string]struct {
		names []string
		want  string
	}{
		"no tag":                    {[]string{"ghcr.io/a/b"}, "no image with a registry and a tag"},
		"a digest":                  {[]string{"ghcr.io/a/b@sha256:" + strings.Repeat("0", 64)}, "no image with a registry and a tag"},
		"one name at the site":      {[]string{"ghcr.io/a/x:v1", "quay.io/b/x:v1"}, "would both be x:v1 at a site"},
		"another architecture":      {[]string{"registry.k8s.io/s390x:v1"}, "no image for Linux on [amd64 arm64]"},
		"what the registry has not": {[]string{"registry.k8s.io/missing:v1"}, "copying registry.k8s.io/missing:v1"},
	} {
		t.Run(name, func(t *testing.T) {
			file, _, err := copied(t, mirror, tt.names...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

func TestCheckOfSet(t *testing.T) {
	mirror := startRegistry(t)
	serve(t, mirror+"/a:v1", "amd64", "arm64")
	file, _, err := copied(t, mirror, "registry.k8s.io/a:v1")
	if err != nil {
		t.Fatal(err)
	}
	set, err := image.OpenSet(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	if err := set.Check([]string{"registry.k8s.io/a:v1"}); err != nil {
		t.Error(err)
	}
	err = set.Check([]string{"registry.k8s.io/b:v1"})
	for _, want := range []string{"a:v1 is in the archive, and not in the list", "b:v1 is in the list, and not in the archive"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// An archive that lacks a layer is refused.
func TestCheckFindsMissingLayers(t *testing.T) {
	mirror := startRegistry(t)
	serve(t, mirror+"/a:v1", "amd64")
	file, _, err := copied(t, mirror, "registry.k8s.io/a:v1")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(archive.Extract(f, folder), f.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := archive.Tree(folder)
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f archive.File) bool {
		info, err := os.Stat(f.Path)
		return err != nil || strings.HasPrefix(f.Name, "blobs/") && info.Size() > 1024 // a random layer
	})
	if err := archive.Create(file, func(w io.Writer) error { return archive.Write(w, files, time.Unix(0, 0)) }); err != nil {
		t.Fatal(err)
	}
	set, err := image.OpenSet(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	if err := set.Check([]string{"registry.k8s.io/a:v1"}); err == nil || !strings.Contains(err.Error(), "the image registry.k8s.io/a:v1 is not valid: for linux/amd64") {
		t.Errorf("got error %v", err)
	}
}
