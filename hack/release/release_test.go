package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

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
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	r, to, output := small(t), strings.TrimPrefix(server.URL, "http://")+"/edge/", filepath.Join(t.TempDir(), "published")
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
