package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func writeTestFile(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// readTar returns the content of a tar stream by name.
func readTar(t *testing.T, in io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWriteArchive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "images.tar")
	err := WriteArchive(file,
		Workload{Name: "example.com/one:v1", Entrypoint: []string{"/one"}, Files: map[string]string{"/one": writeTestFile(t, "a", "program one")}},
		Workload{Name: "example.com/two:v2", Files: map[string]string{"/usr/bin/two": writeTestFile(t, "b", "program two")}},
	)
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	files := readTar(t, in)
	var manifest []manifestEntry
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ name, path, content, entrypoint string }{
		{"example.com/one:v1", "one", "program one", "/one"}, {"example.com/two:v2", "usr/bin/two", "program two", ""},
	} {
		entry := manifest[i]
		if !slices.Equal(entry.RepoTags, []string{want.name}) {
			t.Errorf("got names %v", entry.RepoTags)
		}
		layer := files[entry.Layers[0]]
		if got := string(readTar(t, bytes.NewReader(layer))[want.path]); got != want.content {
			t.Errorf("%s: got %q at %s", want.name, got, want.path)
		}
		var config imageConfig
		if err := json.Unmarshal(files[entry.Config], &config); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(layer)
		if config.RootFS.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("%s: the layer has another hash than %v", want.name, config.RootFS.DiffIDs)
		}
		if strings.Join(config.Config.Entrypoint, " ") != want.entrypoint {
			t.Errorf("%s: got entrypoint %v", want.name, config.Config.Entrypoint)
		}
	}
}

func TestArchiveIsCached(t *testing.T) {
	b := Builder{Cache: t.TempDir()}
	program := writeTestFile(t, "program", "one")
	w := Workload{Name: "example.com/x:v1", Files: map[string]string{"/x": program}}
	first, err := b.Archive("images", w)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.Archive("images", w); err != nil || again != first {
		t.Errorf("got %s, %v", again, err)
	}
	if err := os.WriteFile(program, []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, err := b.Archive("images", w); err != nil || changed == first {
		t.Errorf("a changed program gave the same archive: %v", err)
	}
}

func TestMirror(t *testing.T) {
	const deb822 = "# from an image\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"nothing", nil, mainMirror},
		{"one line", map[string]string{"sources.list": "# x\ndeb [arch=amd64] http://a.example/debian bookworm main\n"}, "http://a.example/debian"},
		{"deb822", map[string]string{"sources.list.d/debian.sources": deb822}, "http://mirror.example/debian"},
		{"security first", map[string]string{
			"sources.list.d/debian.sources": strings.Replace(deb822, "bookworm b", "bookworm-security b", 1) + "\n" + deb822,
		}, "http://mirror.example/debian"},
		{"another distribution", map[string]string{"sources.list": "deb http://a.example/ubuntu noble main\n"}, mainMirror},
	} {
		t.Run(tt.name, func(t *testing.T) {
			apt := fstest.MapFS{}
			for name, content := range tt.files {
				apt[name] = &fstest.MapFile{Data: []byte(content)}
			}
			if got := mirror(apt); got != tt.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestWorkloads(t *testing.T) {
	names := parseImageNames("registry.k8s.io/kube-proxy:v1.36.3\nregistry.k8s.io/coredns/coredns:v1.14.2\nregistry.k8s.io/pause:3.10\n")
	want := map[string]string{
		"kube-proxy": "registry.k8s.io/kube-proxy:v1.36.3", "coredns": "registry.k8s.io/coredns/coredns:v1.14.2",
		"pause": "registry.k8s.io/pause:3.10",
	}
	if !maps.Equal(names, want) {
		t.Fatalf("got %v", names)
	}
	names["kube-vip"] = "ghcr.io/kube-vip/kube-vip:v0.9.1"
	all, err := workloads(names, map[string]string{"pause": "/own/pause", "kubeproxy": "/own/kubeproxy"}, "/tools", "/iptables.tar")
	if err != nil || len(all) != 4 {
		t.Fatalf("got %v, %v", all, err)
	}
	vip := all[2]
	if vip.Name != names["kube-vip"] || vip.Entrypoint[0] != "/kube-vip" || vip.Files["/kube-vip"] != "/tools/kube-vip" {
		t.Errorf("got %+v", vip)
	}
	proxy := all[1]
	if proxy.Base != "/iptables.tar" || proxy.Files["/usr/local/bin/kube-proxy"] != "/own/kubeproxy" {
		t.Errorf("got %+v", proxy)
	}
	names["surprise"] = "registry.k8s.io/surprise:v1"
	if _, err := workloads(names, nil, "", ""); err == nil {
		t.Error("an unknown image was accepted")
	}
}

// TestClosure checks that relative and absolute links are followed inside the root.
func TestClosure(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/sbin", "etc/alternatives"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "usr", "sbin", "real"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"usr/sbin/tool": "/etc/alternatives/tool", "etc/alternatives/tool": "/sbin/real", "sbin": "usr/sbin", "usr/sbin/loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := closure(root, "usr/sbin/tool")
	want := []string{"/etc/alternatives/tool", "/sbin", "/usr/sbin/real", "/usr/sbin/tool"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, pattern := range []string{"usr/sbin/missing", "usr/sbin/loop"} {
		if _, err := closure(root, pattern); err == nil {
			t.Errorf("%s was accepted", pattern)
		}
	}
}

// TestHostFiles checks that scripts are executable and that all placeholders are replaced.
func TestHostFiles(t *testing.T) {
	all, err := hostFiles(kubernetes{tools: "/tools", names: map[string]string{"pause": "registry.k8s.io/pause:3.10"}})
	if err != nil {
		t.Fatal(err)
	}
	config := all.inline["etc/containerd/config.toml"]
	if !strings.Contains(config, "sandbox = 'registry.k8s.io/pause:3.10'") {
		t.Errorf("got %s", config)
	}
	for name, text := range all.inline {
		if script := strings.HasPrefix(text, "#!"); script != (fileMode(name) == 0o755) {
			t.Errorf("%s: script %t, mode %o", name, script, fileMode(name))
		}
	}
}

// TestKindFiles checks that a node of kind has kind's own files, and programs where these expect them.
func TestKindFiles(t *testing.T) {
	base := fstest.MapFS{
		"usr/local/bin/entrypoint":                    {Data: []byte("#!/bin/bash\n")},
		"kind/bin/undo-mount-hacks.sh":                {Data: []byte("#!/bin/bash\n")},
		"etc/containerd/config.toml":                  {Data: []byte("sandbox_image = \"registry.k8s.io/pause:3.9\"\n")},
		"etc/systemd/system/kubelet.service":          {Data: []byte("[Service]\nExecStart=/usr/bin/kubelet\n")},
		"etc/systemd/system/undo-mount-hacks.service": {Data: []byte("[Unit]\n")},
	}
	k := kubernetes{version: "v1.36.3", tools: "/tools", names: map[string]string{"pause": "registry.k8s.io/pause:3.10"}}
	all, err := kindFiles(k, base)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"kind/version": "v1.36.3", "etc/systemd/system/kubelet.service": "ExecStart=/usr/bin/kubelet",
		"etc/containerd/config.toml": "sandbox = 'registry.k8s.io/pause:3.10'", "etc/systemd/system/lab-network.service": "/etc/lab/routes",
	} {
		if got := all.inline[name]; !strings.Contains(got, want) {
			t.Errorf("%s is %q", name, got)
		}
	}
	for name, want := range map[string]string{
		"usr/bin/kubeadm": "/tools/kubeadm", "usr/local/bin/containerd": "/tools/containerd", "opt/cni/bin/bridge": "/tools/bridge",
		"usr/local/bin/kubelet": "", "usr/local/lib/kubeadm": "",
	} {
		if got := all.copied[name]; got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, name := range []string{"usr/local/bin/kubeadm", "usr/local/sbin/lab-boot"} {
		if _, exists := all.inline[name]; exists {
			t.Errorf("a node of kind has %s of a lab host", name)
		}
	}
	var root bytes.Buffer
	if err := writeRoot(&root, files{inline: all.inline}, nil); err != nil {
		t.Fatal(err)
	}
	written := readTar(t, &root)
	for _, unit := range []string{"kubelet", "lab-network", "undo-mount-hacks"} {
		if _, enabled := written["etc/systemd/system/multi-user.target.wants/"+unit+".service"]; !enabled {
			t.Errorf("%s is not enabled", unit)
		}
	}
}

// TestBareFiles checks that nothing of Kubernetes is on a bare host.
func TestBareFiles(t *testing.T) {
	all, err := bareFiles()
	if err != nil {
		t.Fatal(err)
	}
	if all.inline["usr/local/sbin/lab-boot"] == "" || len(all.copied) > 0 {
		t.Errorf("got %v, %v", sortedKeys(all.inline), all.copied)
	}
	for name := range all.inline {
		if strings.Contains(name, "containerd") || strings.HasSuffix(name, "kubeadm") || strings.HasSuffix(name, "kubelet.service") {
			t.Errorf("a bare host has %s", name)
		}
	}
}

// TestWrapKubeadm checks that the wrapper in a bundle runs the program that it holds.
func TestWrapKubeadm(t *testing.T) {
	folder := t.TempDir()
	program, target := filepath.Join(folder, "program"), filepath.Join(folder, "kubeadm")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"kubeadm $*\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	wrapper := "#!/bin/sh\nset -- \"$@\" --wrapped\nexec /usr/local/lib/kubeadm \"$@\"\n"
	if err := wrapKubeadm(target, wrapper, program); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUNTIME_DIRECTORY", folder)
	for range 2 {
		out, err := exec.CommandContext(t.Context(), target, "version").CombinedOutput()
		if err != nil || string(out) != "kubeadm version --wrapped\n" {
			t.Errorf("got %q, %v", out, err)
		}
	}
}
