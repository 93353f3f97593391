package toolset

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func names(tools []Tool) []string {
	var all []string
	for _, t := range tools {
		all = append(all, t.Name)
	}
	return all
}

func TestSelect(t *testing.T) {
	for _, tt := range []struct {
		name string
		ask  []string
		want []string
	}{
		{"a tool", []string{"kube-apiserver"}, []string{"kube-apiserver"}},
		{"twice, in build order", []string{"kube-apiserver", "etcd", "etcd"}, []string{"etcd", "kube-apiserver"}},
		{"a set", []string{"cluster-api"}, []string{"capi-core", "capi-kubeadm-bootstrap", "capi-kubeadm-control-plane", "clusterctl"}},
		{"a tool named as its set", []string{"containerd"}, []string{"containerd"}},
		{"everything", []string{"all"}, names(slices.DeleteFunc(Tools(), func(t Tool) bool { return t.Set == previous }))},
		{"a set whose tools have the names of another", []string{previous}, []string{
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubeadm", "kubectl", "kubelet",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Select(tt.ask...)
			if err != nil || !slices.Equal(names(got), tt.want) {
				t.Errorf("got %v, %v", names(got), err)
			}
		})
	}
	if got, err := Select(previous); err != nil || got[0].Set != previous {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := Select("etcd", "nonsense"); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("got error %v", err)
	}
}

// TestToolsHaveModules looks at the real modules: whatever is stamped must be required, and go.sum must be there.
func TestToolsHaveModules(t *testing.T) {
	for _, tool := range Tools() {
		if _, _, err := (Builder{Modules: ".."}).plan(tool, "go version"); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
	}
}

func TestLDFlags(t *testing.T) {
	plain, err := Tool{}.ldflags("")
	if err != nil || plain != "-s -w" {
		t.Errorf("got %q, %v", plain, err)
	}
	stamped, err := Tool{Stamp: "example.com/version"}.ldflags("v1.36.3")
	want := "-s -w -X example.com/version.gitVersion=v1.36.3 -X example.com/version.gitMajor=1" +
		" -X example.com/version.gitMinor=36 -X example.com/version.gitTreeState=clean"
	if err != nil || stamped != want {
		t.Errorf("got %q, %v", stamped, err)
	}
	if got, err := (Tool{C: true}).ldflags(""); err != nil || got != "-s -w -linkmode external -extldflags -static" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := (Tool{Stamp: "x"}).ldflags("v1"); err == nil {
		t.Error("a version that can't be split was accepted")
	}
}

func TestRequiredVersion(t *testing.T) {
	const gomod = "module m\n\nrequire example.com/one v1.0.0\n\nrequire (\n\texample.com/two v2.0.0 // indirect\n)\n\n" +
		"replace (\n\texample.com/three => example.com/three v3.0.0\n)\n"
	for module, want := range map[string]string{
		"example.com/one": "v1.0.0", "example.com/two": "v2.0.0", "example.com/three": "", "example.com": "",
	} {
		got, err := requiredVersion(gomod, module)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", module, got, err)
		}
	}
}

// module makes a tool set of one program and returns a builder for it.
func module(t *testing.T) (Builder, *bytes.Buffer) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("go is not in PATH")
	}
	root := t.TempDir()
	set := filepath.Join(root, "modules", "set")
	if err := os.MkdirAll(set, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod":  "module example.com/set\n\ngo 1.26.0\n",
		"go.sum":  "",
		"main.go": "package main\n\nfunc main() { print(\"built\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(set, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	progress := &bytes.Buffer{}
	return Builder{Modules: filepath.Join(root, "modules"), Cache: filepath.Join(root, "cache"), Progress: progress}, progress
}

func TestFolder(t *testing.T) {
	b, progress := module(t)
	tool := Tool{Name: "program", Set: "set", Package: "example.com/set"}
	folder, err := b.Folder(t.Context(), tool)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "program")).CombinedOutput()
	if err != nil || string(out) != "built" {
		t.Fatalf("got %q, %v", out, err)
	}
	if !strings.HasPrefix(progress.String(), "building program\n") {
		t.Errorf("got progress %q", progress)
	}

	progress.Reset()
	again, err := b.Folder(t.Context(), tool)
	if err != nil || again != folder || progress.Len() > 0 {
		t.Errorf("a second call was not served from the cache: %s, %v, %q", again, err, progress)
	}
	tool.Tags = "other"
	if other, err := b.Folder(t.Context(), tool); err != nil || other == folder {
		t.Errorf("a changed input gave the same folder: %v", err)
	}
}

// Two versions of a program can't be in one folder. That is found out before anything is built.
func TestFolderOfTwoVersions(t *testing.T) {
	b, progress := module(t)
	_, err := b.Folder(t.Context(), Tool{Name: "program", Set: "set"}, Tool{Name: "program", Set: "previous"})
	if err == nil || !strings.Contains(err.Error(), "tool sets set and previous") || progress.Len() > 0 {
		t.Errorf("got %v, %q", err, progress)
	}
}

func TestFolderAtOnce(t *testing.T) {
	b, progress := module(t)
	tool := Tool{Name: "program", Set: "set", Package: "example.com/set"}
	folders, errs := make([]string, 4), make([]error, 4)
	var group sync.WaitGroup
	for i := range folders {
		group.Go(func() { folders[i], errs[i] = b.Folder(t.Context(), tool) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if len(slices.Compact(folders)) != 1 {
		t.Errorf("got folders %v", folders)
	}
	if strings.Count(progress.String(), "took") != 1 {
		t.Errorf("built more than once:\n%s", progress)
	}
}

func TestBuildFailure(t *testing.T) {
	b, _ := module(t)
	_, err := b.Folder(t.Context(), Tool{Name: "program", Set: "set", Package: "example.com/set/missing"})
	if err == nil || !strings.Contains(err.Error(), "building program") {
		t.Errorf("got %v", err)
	}
	left, err := filepath.Glob(filepath.Join(b.Cache, "tools", "store", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

// A build that is given up ends with all that it has started, and what others left that were killed goes with the next.
func TestBuildGivenUp(t *testing.T) {
	b, _ := module(t)
	tool := Tool{Name: "program", Set: "set", Package: "example.com/set"}
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// A compiler that hangs and does not care for an interrupt.
	script := "#!/bin/sh\n[ \"$1\" = version ] || { sleep 600 >'" + pipe + "' 2>&1 & wait; }\n"
	if err := os.WriteFile(filepath.Join(folder, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", folder+":"+path)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := b.Folder(ctx, tool)
		ended <- err
	}()
	compiler, err := os.Open(pipe) // returns when it runs
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = compiler.Close() }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := compiler.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(compiler); err != nil {
		t.Errorf("the compiler lives: %v", err)
	}

	store := filepath.Join(b.Cache, "tools", "store")
	if err := os.Mkdir(filepath.Join(store, unfinished+"1"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	if _, err := b.Folder(t.Context(), tool); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(store, unfinished+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
}

func TestLockHonoursContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, file); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	unlock()
	if _, err := lock(t.Context(), file); err != nil {
		t.Error(err)
	}
}
