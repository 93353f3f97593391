package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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

	"github.com/capi-elemental/cluster-api-provider-elemental/hack/release/checksums"
)

const deployment = "kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n        - image: controller:latest\n---\nkind: Service\nmetadata:\n  annotations:\n    placeholder: annotations\n"

// small makes a release whose programs are all one small program.
func small(t *testing.T) release {
	t.Helper()
	work := t.TempDir()
	kustomize := filepath.Join(work, "kustomize")
	if err := os.WriteFile(kustomize, []byte("cat <<END\n"+deployment+"END\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := built(work, manager, architectures()[0])
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", first, "./sbom/testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("building a program: %v\n%s", err, out)
	}
	program, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, architecture := range architectures() {
		for _, command := range append(commands(), manager) {
			if err := os.WriteFile(built(work, command, architecture), program, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := &builder{root: filepath.Join("..", ".."), version: "v0.2.3", image: "registry.example.com/elemental-manager", kustomize: "sh " + kustomize}
	r := release{t.TempDir(), b.version}
	if err := b.manifests(t.Context(), r.folder); err != nil {
		t.Fatal(err)
	}
	if err := b.assemble(r, work, time.Unix(1_700_000_000, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerify(t *testing.T) {
	r := small(t)
	if err := verify(r.folder); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func() error
		want   string
	}{
		"a package is missing": {
			func() error { return os.Remove(filepath.Join(r.folder, "elemental-agent_0.2.3_arm64.deb")) },
			"there are 0 files elemental-agent_*_arm64.deb",
		},
		"the components name another image": {
			func() error {
				text := strings.ReplaceAll(deployment, "controller:latest", "evil.example.com/manager:v0.2.3")
				return os.WriteFile(filepath.Join(r.folder, "infrastructure-components.yaml"), []byte(text), 0o600)
			}, "names the images",
		},
		"the list of modules is of another program": {
			func() error {
				file := r.sbom(manager, "arm64")
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				return os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "pkg:golang/github.com/CycloneDX", "pkg:golang/example.com")), 0o600)
			}, "manager_v0.2.3_linux_arm64.cdx.json: github.com/CycloneDX/cyclonedx-go",
		},
		"the manifest for krew names another archive": {
			func() error {
				text, err := os.ReadFile(r.krew())
				if err != nil {
					return err
				}
				return os.WriteFile(r.krew(), []byte(strings.ReplaceAll(string(text), "arch: arm64", "arch: riscv64")), 0o600)
			}, "krew-elemental.yaml is not what follows",
		},
		"an archive is of another version": {
			func() error { return os.Rename(r.archive("bundle", "amd64"), r.archive("bundle", "riscv64")) },
			"bundle_v0.2.3_linux_amd64.tar.gz",
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := r.folder
			r.folder = filepath.Join(t.TempDir(), "copy")
			defer func() { r.folder = whole }()
			if err := os.CopyFS(r.folder, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := tt.change(); err != nil {
				t.Fatal(err)
			}
			// So that not only the digests tell.
			if err := checksums.Write(r.folder); err != nil {
				t.Fatal(err)
			}
			if err := verify(r.folder); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
	if err := verify(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not the folder of one release") {
		t.Errorf("got error %v", err)
	}
}

func TestPublish(t *testing.T) {
	r, to, output := small(t), startRegistry(t)+"/edge/", filepath.Join(t.TempDir(), "published")
	if err := publish(t.Context(), r.folder, to, r.folder); err == nil || !strings.Contains(err.Error(), "another folder") {
		t.Errorf("got error %v", err)
	}
	if err := publish(t.Context(), r.folder, to, output); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(output, "infrastructure-components.yaml"))
	if err != nil || !strings.Contains(string(text), "image: "+to+"elemental-manager@sha256:") {
		t.Errorf("got %v\n%s", err, text)
	}
	if err := os.WriteFile(filepath.Join(r.folder, "images.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publish(t.Context(), r.folder, to, output); err == nil || !strings.Contains(err.Error(), "nothing was pushed") {
		t.Errorf("got error %v", err)
	}
}

const coreDNS = "registry.k8s.io/coredns/coredns:v1.14.1"

// listed makes a small release. It returns the images that it lacks, and a file with one more image, which is twice there.
func listed(t *testing.T) (r release, names []string, further string) {
	t.Helper()
	r = small(t)
	list, err := os.ReadFile(filepath.Join(r.folder, imageList))
	if err != nil {
		t.Fatal(err)
	}
	own, err := r.ownImage()
	if err != nil {
		t.Fatal(err)
	}
	further = filepath.Join(t.TempDir(), "kubernetes.txt")
	if err := os.WriteFile(further, []byte(coreDNS+"\n\n"+coreDNS+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return r, append(others(list, own), coreDNS), further
}

// A release gets the images of its list and further ones, from a mirror of their registries, and
// publishing it pushes them.
func TestImages(t *testing.T) {
	mirror, site := startRegistry(t), startRegistry(t)
	r, names, further := listed(t)
	for _, image := range names {
		_, path, _ := strings.Cut(image, "/")
		serve(t, mirror+"/cache/"+path)
	}
	b := &builder{root: filepath.Join("..", "..")}
	for range 2 { // a repetition replaces the archives
		if err := b.addImages(t.Context(), r.folder, mirror+"/cache", further); err != nil {
			t.Fatal(err)
		}
		if err := verify(r.folder); err != nil {
			t.Error(err)
		}
	}
	members, err := exec.CommandContext(t.Context(), "tar", "-tf", r.airgap()).Output()
	if err != nil || strings.Count(string(members), "/images_v0.2.3.oci.tar\n") != 1 || strings.Contains(string(members), "airgap") {
		t.Errorf("the archive for air-gapped sites has %v\n%s", err, members)
	}
	if err := publish(t.Context(), r.folder, site+"/edge", filepath.Join(t.TempDir(), "published")); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"coredns:v1.14.1", "elemental-manager:v0.2.3", "kube-vip:" + tagOf(t, names, "kube-vip")} {
		tag, err := name.NewTag(site + "/edge/" + image)
		if err == nil {
			_, err = remote.Index(tag)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.folder, imageList), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verify(r.folder); err == nil || !strings.Contains(err.Error(), "coredns:v1.14.1 is in the archive, and not in the list") {
		t.Errorf("got error %v", err)
	}
}

// A release whose images can't all be copied stays as it is.
func TestImagesAreMissing(t *testing.T) {
	r, _, further := listed(t)
	before, err := checksums.Sum(filepath.Join(r.folder, checksums.File))
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{root: filepath.Join("..", "..")}
	if err := b.addImages(t.Context(), r.folder, startRegistry(t), further); err == nil || !strings.Contains(err.Error(), "copying ") {
		t.Errorf("got error %v", err)
	}
	if after, err := checksums.Sum(filepath.Join(r.folder, checksums.File)); err != nil || after != before {
		t.Errorf("the digests were %s and are %s, %v", before, after, err)
	}
	if err := checksums.Check(r.folder); err != nil {
		t.Error(err)
	}
}

// startRegistry starts a registry and returns its address.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// serve pushes an image for all architectures to a registry.
func serve(t *testing.T, image string) {
	t.Helper()
	tag, err := name.NewTag(image)
	if err != nil {
		t.Fatal(err)
	}
	index := v1.ImageIndex(empty.Index)
	for _, architecture := range architectures() {
		img, err := random.Image(256, 1)
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
}

// tagOf returns the tag of the image whose path ends so.
func tagOf(t *testing.T, names []string, end string) string {
	t.Helper()
	for _, image := range names {
		if _, tag, found := strings.Cut(image, "/"+end+":"); found {
			return tag
		}
	}
	t.Fatalf("%v has no image %s", names, end)
	return ""
}

func TestCommandLine(t *testing.T) {
	folder := t.TempDir()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"an unknown command":  {[]string{"destroy"}, `no command "destroy"`},
		"no folder":           {[]string{"verify"}, "needs one folder"},
		"no semantic version": {[]string{"build", "-version", "1.2", "-image", "a/b", folder}, "must be a semantic one with a v"},
		"no release series": {
			[]string{"manifests", "-root", "../..", "-version", "v99.0.1", "-image", "a/b", folder}, "metadata.yaml has no release series for v99.0.1",
		},
		"an image with digest": {[]string{"manifests", "-version", "v0.2.3", "-image", "a/b@sha256:0", folder}, "without tag and digest"},
		"a folder with other files": {
			[]string{"build", "-root", "../..", "-version", "v0.2.3", "-image", "a/b", "sbom"}, "it is not replaced: remove it",
		},
		"no registry": {[]string{"publish", "-output", "x", folder}, "needs -registry"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}
