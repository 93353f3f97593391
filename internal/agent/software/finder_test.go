package software_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestFindsAllPrograms(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/bin/kubelet", "/usr/bin/kubeadm", "/usr/bin/kubectl", "/usr/bin/containerd", "/usr/sbin/runc", "/opt/cni/bin/loopback")
	b.config("/var/lib/dpkg/status", "")
	for _, path := range []string{"/usr/bin/kubelet", "/usr/bin/containerd", "/usr/sbin/runc"} {
		b.packages["env LC_ALL=C dpkg-query --search "+path] = answer{output: "a-package: " + path + "\n"}
	}
	b.packages["env LC_ALL=C dpkg-query --search /usr/bin/kubectl"] = answer{output: "local diversion from: /usr/bin/kubectl\n"}
	want := protocol.Kubernetes{
		Kubelet: protocol.Program{Path: "/usr/bin/kubelet", Version: "v1.36.3", Origin: protocol.OriginPackage},
		Kubeadm: protocol.Program{Path: "/usr/bin/kubeadm", Version: "v1.36.3", Origin: protocol.OriginOther},
		Kubectl: protocol.Program{Path: "/usr/bin/kubectl", Version: "v1.36.3", Origin: protocol.OriginOther},
		ContainerRuntime: protocol.ContainerRuntime{
			Name: protocol.RuntimeContainerd, Path: "/usr/bin/containerd", Version: "v2.1.4", Origin: protocol.OriginPackage,
			Socket: "/run/containerd/containerd.sock",
		},
		Runc:       protocol.Program{Path: "/usr/sbin/runc", Version: "1.1.5+ds1", Origin: protocol.OriginPackage},
		CNIPlugins: protocol.Program{Path: "/opt/cni/bin", Version: "v1.7.1", Origin: protocol.OriginOther},
	}
	if diff := cmp.Diff(want, b.find()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A file of a bundle belongs to no package, whatever a database says about its name.
func TestProgramsOfABundle(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/bin/kubelet", "/usr/bin/kubeadm", "/opt/cni/bin/loopback")
	b.bundled = []string{"/usr/bin/kubelet", "/opt/cni/bin/loopback"}
	found := b.find()
	for path, program := range map[string]protocol.Program{"/usr/bin/kubelet": found.Kubelet, "/opt/cni/bin": found.CNIPlugins} {
		if program.Path != path || program.Origin != protocol.OriginBundle {
			t.Errorf("got %+v, want %s from a bundle", program, path)
		}
	}
	if found.Kubeadm.Origin != protocol.OriginOther {
		t.Errorf("got %+v", found.Kubeadm)
	}
}

func TestFindsNothingOnABareHost(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.config("/usr/bin/kubelet", "not executable")
	if found := b.find(); found != (protocol.Kubernetes{}) || b.ran != nil {
		t.Errorf("found %+v, ran %q", found, b.ran)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ path, args, prints, want string }{
		"old kubectl":       {"/usr/bin/kubectl", "version --client", `Client Version: version.Info{Major:"1", Minor:"24", GitVersion:"v1.24.9", GitCommit:"x"}`, "v1.24.9"},
		"pre-release":       {"/usr/bin/kubelet", "--version", "Kubernetes v1.37.0-rc.1+k3s1\n", "v1.37.0-rc.1+k3s1"},
		"after a warning":   {"/usr/bin/kubelet", "--version", "W0101 12:00:00.0001 v9.9.9 is odd\nKubernetes v1.36.3\n", "v1.36.3"},
		"something else":    {"/usr/bin/kubelet", "--version", "kubelet of Acme 9.9.9\n", ""},
		"nothing":           {"/usr/bin/kubeadm", "version --output short", "", ""},
		"Debian containerd": {"/usr/bin/containerd", "--version", "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1\n", "1.6.20~ds1"},
		"Docker containerd": {"/usr/bin/containerd", "--version", "containerd containerd.io 1.7.25 bcc810d6b9066471b0b6fa75f557a15a1cbf31bb\n", "1.7.25"},
		"CRI-O":             {"/usr/bin/crio", "--version", "crio version 1.34.1\nVersion: 1.34.1\n", "1.34.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, test.path)
			b.prints[test.path+" "+test.args] = test.prints
			found := b.find()
			versions := []string{found.Kubelet.Version, found.Kubeadm.Version, found.Kubectl.Version, found.ContainerRuntime.Version}
			if got := slices.Max(versions); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOldPluginsHaveNoVersion(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/lib/cni/loopback")
	b.prints["/usr/lib/cni/loopback"] = `{"code": 4, "msg": "environment variable CNI_COMMAND must be specified, see 0.1.0"}`
	if want, got := (protocol.Program{Path: "/usr/lib/cni", Origin: protocol.OriginOther}), b.find().CNIPlugins; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Programs run again only when their files have changed.
func TestRunsNothingAtRest(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/bin/kubelet", "/usr/bin/kubeadm")
	first := b.find()
	if ran := b.take(); !slices.Equal(ran, []string{"/usr/bin/kubelet --version", "/usr/bin/kubeadm version --output short"}) {
		t.Errorf("ran %q", ran)
	}
	for range 3 {
		b.now = b.now.Add(24 * time.Hour)
		if again := b.find(); again != first {
			t.Errorf("found %+v, then %+v", first, again)
		}
	}
	if ran := b.take(); ran != nil {
		t.Errorf("ran %q although nothing had changed", ran)
	}

	b.prints["/usr/bin/kubelet --version"] = "Kubernetes v1.36.4\n"
	change := func(what string, change func(path string) error) {
		t.Helper()
		if err := change(filepath.Join(b.root, "/usr/bin/kubelet")); err != nil {
			t.Fatal(err)
		}
		if got := b.find().Kubelet.Version; got != "v1.36.4" {
			t.Errorf("%s: the version is %s", what, got)
		}
		if ran := b.take(); !slices.Equal(ran, []string{"/usr/bin/kubelet --version"}) {
			t.Errorf("%s: ran %q", what, ran)
		}
	}
	change("another size", func(path string) error { return os.WriteFile(path, []byte("longer than before"), 0o755) })
	change("another time", func(path string) error { return os.Chtimes(path, time.Time{}, b.now) })
	change("another file", func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return errors.Join(
			os.WriteFile(path+"-new", []byte("longer than before"), 0o755), os.Chtimes(path+"-new", time.Time{}, info.ModTime()), os.Rename(path+"-new", path),
		)
	})
}

// What could not be found out is tried again: soon, because a host that boots may only have been slow, and then less and
// less often.
func TestTriesAgainLater(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/bin/kubelet")
	version := b.prints["/usr/bin/kubelet --version"]
	b.prints["/usr/bin/kubelet --version"] = ""
	var ran []int
	for start := b.now; b.now.Sub(start) <= 4*time.Hour; b.now = b.now.Add(5 * time.Second) {
		if got := b.find().Kubelet; got.Version != "" || got.Path == "" {
			t.Fatalf("got %+v", got)
		}
		if b.take() != nil {
			ran = append(ran, int(b.now.Sub(start).Seconds()))
		}
	}
	want := []int{0, 10, 30, 70, 150, 310, 630, 1270, 2550, 5110, 8710, 12310}
	if !slices.Equal(ran, want) {
		t.Errorf("ran after %v seconds, want %v", ran, want)
	}

	b.prints["/usr/bin/kubelet --version"] = version
	b.now = b.now.Add(time.Hour)
	if got := b.find().Kubelet.Version; got != "v1.36.3" {
		t.Errorf("the version is %q", got)
	}
	b.now = b.now.Add(24 * time.Hour)
	if b.take(); b.find().Kubelet.Version != "v1.36.3" || b.take() != nil {
		t.Error("ran again although the version is known")
	}
}

// An agent that stops records nothing of what it did not find out.
func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/bin/kubelet", "/usr/bin/kubeadm")
	ctx, cancel := context.WithCancel(t.Context())
	b.onRun = func(string) { cancel() }
	if _, err := b.finder.Find(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.onRun = nil
	b.take()
	if found := b.find(); found.Kubelet.Version == "" || found.Kubeadm.Version == "" || len(b.take()) != 2 {
		t.Errorf("found %+v", found)
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	const dpkg, rpm, path = "env LC_ALL=C dpkg-query --search ", "env LC_ALL=C rpm --query --file ", "/usr/bin/kubelet"
	notOwned := answer{"file " + path + " is not owned by any package\n", fmt.Errorf("running env: %w", exitError{1, ""})}
	unreadable := answer{notOwned.output, fmt.Errorf("running env: %w", exitError{1, "error: cannot open Packages database"})}
	missing := answer{"", fmt.Errorf("running env: %w", exitError{127, "env: rpm: No such file or directory"})}
	hung := answer{"", context.DeadlineExceeded}
	for name, test := range map[string]struct {
		mark    string
		answers map[string]answer
		want    protocol.Origin
	}{
		"no database":          {"", nil, protocol.OriginOther},
		"dpkg, owned":          {"/var/lib/dpkg/status", map[string]answer{dpkg + path: {output: "kubelet: " + path + "\n"}}, protocol.OriginPackage},
		"dpkg, not owned":      {"/var/lib/dpkg/status", nil, protocol.OriginOther},
		"dpkg, diverted":       {"/var/lib/dpkg/status", map[string]answer{dpkg + path: {output: "diversion by acme from: " + path + "\nkubelet: " + path + "\n"}}, protocol.OriginPackage},
		"dpkg, broken":         {"/var/lib/dpkg/status", map[string]answer{dpkg + path: {err: exitError{2, "dpkg-query: error"}}}, ""},
		"dpkg, hanging":        {"/var/lib/dpkg/status", map[string]answer{dpkg + path: hung}, ""},
		"rpm, owned":           {"/var/lib/rpm/rpmdb.sqlite", map[string]answer{rpm + path: {output: "kubelet-1.36.3-1.x86_64\n"}}, protocol.OriginPackage},
		"rpm, not owned":       {"/usr/lib/sysimage/rpm/rpmdb.sqlite", map[string]answer{rpm + path: notOwned}, protocol.OriginOther},
		"rpm, unreadable":      {"/usr/lib/sysimage/rpm/rpmdb.sqlite", map[string]answer{rpm + path: unreadable}, ""},
		"rpm, not installed":   {"/usr/share/rpm/rpmdb.sqlite", map[string]answer{rpm + path: missing}, ""},
		"rpm, without a reply": {"/var/lib/rpm/rpmdb.sqlite", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, path)
			if test.mark != "" {
				b.config(test.mark, "")
			}
			b.packages = test.answers
			if got := b.find().Kubelet.Origin; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The package has the file to which a link of update-alternatives leads.
func TestOriginOfALink(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/libexec/kubelet-1.36")
	b.config("/var/lib/dpkg/status", "")
	b.link("/usr/bin/kubelet", "/usr/libexec/kubelet-1.36")
	b.packages["env LC_ALL=C dpkg-query --search /usr/libexec/kubelet-1.36"] = answer{output: "kubelet: /usr/libexec/kubelet-1.36\n"}
	if want, got := (protocol.Program{Path: "/usr/bin/kubelet", Version: "v1.36.3", Origin: protocol.OriginPackage}), b.find().Kubelet; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
