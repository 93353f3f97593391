package build_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle/build"
)

// source is a file of a folder to build from.
type source struct {
	content string
	mode    fs.FileMode
}

func script(output string) source { return source{"#!/bin/sh\necho '" + output + "'\n", 0o755} }

// tree is a folder with every kind of file.
func tree() map[string]source {
	return map[string]source{
		"bin/kubeadm":           script("v1.36.3"),
		"bin/kubectl":           script("Client Version: v1.36.3\nKustomize Version: v5.8.0"),
		"bin/kubelet":           script("Kubernetes v1.36.3"),
		"cni/bridge":            {"bridge", 0o755},
		"units/kubelet.service": {"[Service]\n", 0o644},
		"units/kubelet.service.d/10-kubeadm.conf":     {"[Service]\n", 0o644},
		"files/etc/containerd/config.toml":            {"version = 3\n", 0o644},
		"files/etc/containerd/certs.d/_default/k.pem": {"key", 0o600},
		"files/etc/systemd/system/containerd.service": {"[Service]\n", 0o644},
		"files/usr/local/sbin/runc":                   {"runc", 0o755},
		"files/opt/site/hook":                         {"#!/bin/sh\n", 0o755},
		"files/opt/site/settings":                     {"", 0o644},
		"images/pause.tar":                            {"image", 0o644},
	}
}

// lay writes files. A program of the test that is started meanwhile would keep a script
// open, and the script could not be executed.
func lay(t *testing.T, files map[string]source, names []string) string {
	t.Helper()
	folder := t.TempDir()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for _, name := range names {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[name].content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, files[name].mode); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func options(folder string) build.Options {
	return build.Options{From: folder, Version: "v1.36.3", Architecture: runtime.GOARCH, Limits: bundle.DefaultLimits()}
}

func write(t *testing.T, folder string) []byte {
	t.Helper()
	b, err := build.Scan(t.Context(), options(folder))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := b.Write(t.Context(), &out, func(bundle.File) {}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Times, the umask and the order in which files were made have no influence.
func TestReproducible(t *testing.T) {
	t.Parallel()
	files := tree()
	names := slices.Sorted(maps.Keys(files))
	first := lay(t, files, names)
	want := write(t, first)
	if !bytes.Equal(want, write(t, first)) {
		t.Error("two bundles of one folder differ")
	}
	slices.Reverse(names)
	for name, f := range files {
		if f.mode&0o077 != 0 {
			f.mode |= 0o020
			files[name] = f
		}
	}
	second := lay(t, files, names)
	for i, name := range names {
		at := time.Unix(int64(1000000*i), 0)
		if err := os.Chtimes(filepath.Join(second, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(second, "files", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, write(t, second)) {
		t.Error("the bundle depends on more than names and contents")
	}
	files["images/pause.tar"] = source{"IMAGE", 0o644}
	if bytes.Equal(want, write(t, lay(t, files, names))) {
		t.Error("the bundle does not depend on contents")
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	files := tree()
	reader, err := bundle.NewReader(t.Context(), bytes.NewReader(write(t, lay(t, files, slices.Sorted(maps.Keys(files))))), bundle.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	m := reader.Manifest()
	if m.KubernetesVersion != "v1.36.3" || m.Architecture != runtime.GOARCH || len(m.Files) != len(files) {
		t.Errorf("got %v", m)
	}
	want := map[string]bundle.File{
		"bin/kubelet":           {Kind: bundle.KindProgram, Path: "/usr/local/bin/kubelet", Mode: 0o755},
		"cni/bridge":            {Kind: bundle.KindProgram, Path: "/opt/cni/bin/bridge", Mode: 0o755},
		"units/kubelet.service": {Kind: bundle.KindUnit, Path: "/etc/systemd/system/kubelet.service", Mode: 0o644},
		"units/kubelet.service.d/10-kubeadm.conf":     {Kind: bundle.KindUnit, Path: "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", Mode: 0o644},
		"files/etc/containerd/config.toml":            {Kind: bundle.KindFile, Path: "/etc/containerd/config.toml", Mode: 0o644},
		"files/etc/containerd/certs.d/_default/k.pem": {Kind: bundle.KindFile, Path: "/etc/containerd/certs.d/_default/k.pem", Mode: 0o600},
		"files/etc/systemd/system/containerd.service": {Kind: bundle.KindUnit, Path: "/etc/systemd/system/containerd.service", Mode: 0o644},
		"files/usr/local/sbin/runc":                   {Kind: bundle.KindProgram, Path: "/usr/local/sbin/runc", Mode: 0o755},
		"files/opt/site/hook":                         {Kind: bundle.KindProgram, Path: "/opt/site/hook", Mode: 0o755},
		"files/opt/site/settings":                     {Kind: bundle.KindFile, Path: "/opt/site/settings", Mode: 0o644},
		"images/pause.tar":                            {Kind: bundle.KindImage, Mode: 0o644},
	}
	for {
		f, content, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(content)
		if err != nil || string(data) != files[f.Name].content {
			t.Errorf("%s: got %q, %v", f.Name, data, err)
		}
		if w, ok := want[f.Name]; ok && (f.Kind != w.Kind || f.Path != w.Path || f.Mode != w.Mode) {
			t.Errorf("%s: got %v, want %v", f.Name, f, w)
		}
	}
}

// elfHeader is the beginning of a program for another machine.
func elfHeader(machine byte) string {
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[16], header[18], header[20], header[52], header[58] = 2, machine, 1, 64, 64
	return string(header)
}

func TestScanRefuses(t *testing.T) {
	t.Parallel()
	add := func(name, content string, mode fs.FileMode) func(string, *build.Options) error {
		return func(folder string, _ *build.Options) error {
			path := filepath.Join(folder, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	option := func(change func(*build.Options)) func(string, *build.Options) error {
		return func(_ string, o *build.Options) error { change(o); return nil }
	}
	for name, test := range map[string]struct {
		change func(folder string, o *build.Options) error
		want   string
	}{
		"no folder":        {option(func(o *build.Options) { o.From += "/none" }), "no such file"},
		"a file":           {option(func(o *build.Options) { o.From += "/bin/kubelet" }), "not a directory"},
		"bad version":      {option(func(o *build.Options) { o.Version = "1.36" }), "write it like v1.36.3"},
		"bad architecture": {option(func(o *build.Options) { o.Architecture = "x86_64" }), "use one of amd64, arm64"},
		"too large a file": {option(func(o *build.Options) { o.Limits.FileBytes = 3 }), "the limit is 3"},
		"too many files":   {option(func(o *build.Options) { o.Limits.Files = 5 }), "more than 5 files"},
		"file at the top":  {add("README", "", 0o644), "README is not in one of the folders bin, cni, units, files and images"},
		"file named bin": {func(folder string, _ *build.Options) error {
			return errors.Join(os.RemoveAll(folder+"/cni"), os.WriteFile(folder+"/cni", nil, 0o600))
		}, "cni is not in one of the folders"},
		"unknown folder":     {add("etc/passwd", "", 0o644), "etc is not in one of the folders"},
		"folder in bin":      {add("bin/more/runc", "", 0o755), "bin/more is a folder in bin"},
		"image of a kind":    {add("images/pause.tar.gz", "", 0o644), "images/pause.tar.gz is no .tar file"},
		"hidden file":        {add("files/opt/.gitkeep", "", 0o644), "none of them a dot at the beginning"},
		"forbidden place":    {add("files/etc/passwd", "", 0o644), "can't be at /etc/passwd: put it below one of /etc/cni/net.d"},
		"no unit":            {add("units/README", "", 0o644), "no unit that systemd knows"},
		"program to nowhere": {add("files/usr/local/bin/runc", "", 0o644), "can't be at /usr/local/bin/runc"},
		"program twice":      {add("files/opt/bin/kubelet", "", 0o755), "2 programs named kubelet"},
		"place twice":        {add("files/etc/systemd/system/kubelet.service", "", 0o644), "both belong at /etc/systemd/system/kubelet.service"},
		"kubelet missing":    {func(folder string, _ *build.Options) error { return os.Remove(folder + "/bin/kubelet") }, "0 programs named kubelet"},
		"setuid":             {add("bin/runc", "", 0o755|fs.ModeSetuid), "remove them by chmod a-st"},
		"symbolic link":      {func(folder string, _ *build.Options) error { return os.Symlink("kubelet", folder+"/bin/link") }, "put the file itself in its place"},
		"pipe":               {func(folder string, _ *build.Options) error { return syscall.Mkfifo(folder+"/bin/pipe", 0o600) }, "is no regular file"},
		"damaged":            {add("cni/vlan", elfHeader(0x3e)[:40], 0o755), "is damaged, so copy it again"},
		"RISC-V":             {add("cni/vlan", elfHeader(0xf3), 0o755), "is a program for riscv, and the bundle is for"},
		"the other of the two": {func(folder string, o *build.Options) error {
			o.Architecture = "arm64"
			return add("cni/vlan", elfHeader(0x3e), 0o755)(folder, o)
		}, "is a program for amd64, and the bundle is for arm64"},
	} {
		files := tree()
		folder := lay(t, files, slices.Sorted(maps.Keys(files)))
		o := options(folder)
		if err := test.change(folder, &o); err != nil {
			t.Fatal(err)
		}
		if _, err := build.Scan(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestScanFollowsTheFolderOnly(t *testing.T) {
	t.Parallel()
	files := tree()
	folder := lay(t, files, slices.Sorted(maps.Keys(files)))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	if _, err := build.Scan(t.Context(), options(link)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build.Scan(ctx, options(folder)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFileChangesAfterScan(t *testing.T) {
	t.Parallel()
	files := tree()
	folder := lay(t, files, slices.Sorted(maps.Keys(files)))
	b, err := build.Scan(t.Context(), options(folder))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "images/pause.tar"), []byte("IMAGE"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), io.Discard, func(bundle.File) {}); err == nil || !strings.Contains(err.Error(), "SHA-256 of images/pause.tar") {
		t.Errorf("got %v", err)
	}
}

func TestCheckVersions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file source
		want string
	}{
		"right":           {script("Kubernetes v1.36.3"), ""},
		"another version": {script("Kubernetes v1.36.2"), `prints "Kubernetes v1.36.2", and the bundle is for v1.36.3`},
		"longer version":  {script("Kubernetes v1.36.30"), "prints"},
		"fails":           {source{"#!/bin/sh\nexit 3\n", 0o755}, "asking kubelet for its version"},
		"not executable":  {source{"#!/bin/sh\n", 0o644}, "permission denied"},
	} {
		files := tree()
		files["bin/kubelet"] = test.file
		b, err := build.Scan(t.Context(), options(lay(t, files, slices.Sorted(maps.Keys(files)))))
		if err != nil {
			t.Fatal(err)
		}
		switch err := b.CheckVersions(t.Context()); {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	files := tree()
	o := options(lay(t, files, slices.Sorted(maps.Keys(files))))
	o.Architecture = map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	b, err := build.Scan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CheckVersions(t.Context()); !errors.Is(err, build.ErrOtherMachine) {
		t.Errorf("got %v", err)
	}
}
