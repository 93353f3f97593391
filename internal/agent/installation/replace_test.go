package installation_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	packagedUnit = "/usr/lib/systemd/system/containerd.service"
	ownUnit      = "/etc/systemd/system/kubelet.service"
)

// newEquippedHost returns a host with programs of its own, and a bundle that replaces them:
// containerd of a package, whose configuration was changed, and a kubelet that somebody has
// put there, with kubectl as a link.
func newEquippedHost(t *testing.T) (*host, installation.Staged) {
	t.Helper()
	h := newHost(t)
	h.write(packagedUnit, "[Service]\nExecStart=/usr/bin/containerd\n")
	h.write("/usr/bin/containerd", "of a package")
	h.write("/etc/containerd/config.toml", "of a package, changed")
	h.write(ownUnit, "[Service]\nExecStart=/usr/local/bin/kubelet\n")
	h.write("/usr/local/bin/kubelet", "of others")
	h.write("/var/lib/containerd/image", "")
	if err := os.Symlink("kubelet", filepath.Join(h.root, "/usr/local/bin/kubectl")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{packagedUnit, "/usr/bin/containerd", "/etc/containerd/config.toml"} {
		h.origins[path] = protocol.OriginPackage
	}
	for _, unit := range []string{"containerd.service", "kubelet.service"} {
		h.enable(unit)
		h.active[unit] = true
	}
	h.before = h.tree()
	h.boot(-1)
	staged := h.stage(version, nil)
	staged.Replace = true
	// The host then starts what the bundle has.
	h.found = protocol.Kubernetes{
		Kubelet: protocol.Program{Path: "/usr/local/bin/kubelet"}, Kubeadm: protocol.Program{Path: "/usr/local/bin/kubeadm"},
		ContainerRuntime: protocol.ContainerRuntime{Path: "/usr/local/bin/containerd"},
	}
	return h, staged
}

func TestReplaceAndPutBack(t *testing.T) {
	t.Parallel()
	h, staged := newEquippedHost(t)
	if err := h.install(staged); err != nil {
		t.Fatal(err)
	}
	h.checkInstalled("installed", staged)
	show := func(unit string) []string {
		return []string{"systemctl show --property UnitFileState --value " + unit, "systemctl show --property ActiveState --value " + unit}
	}
	want := slices.Concat(show("containerd.service"), show("kubelet.service"), []string{
		"systemctl stop containerd.service", "systemctl disable containerd.service", "systemctl stop kubelet.service", "systemctl disable kubelet.service",
		"systemctl daemon-reload", "systemctl restart systemd-modules-load.service", "systemctl restart systemd-sysctl.service",
		"systemctl enable containerd.service", "systemctl start containerd.service",
		"/usr/local/bin/ctr --address /run/containerd/containerd.sock --namespace k8s.io images import " + filepath.Join(staged.Folder, "images/pause.tar"),
		"systemctl enable kubelet.service",
	})
	if diff := cmp.Diff(want, h.ran); diff != "" {
		t.Errorf("commands -want +got:\n%s", diff)
	}
	if h.read(packagedUnit) == "" || h.read("/usr/bin/containerd") != "of a package" {
		t.Error("a file of a package was changed")
	}
	h.ran = nil
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
	if !maps.Equal(h.active, map[string]bool{"containerd.service": true}) {
		t.Errorf("%v run; the kubelet starts at boot", h.active)
	}
	if target, err := os.Readlink(filepath.Join(h.root, "/usr/local/bin/kubectl")); target != "kubelet" {
		t.Errorf("kubectl leads to %q, %v", target, err)
	}
	// Its package may be removed meanwhile.
	h, staged = newEquippedHost(t)
	if err := h.install(staged); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(h.root, packagedUnit)); err != nil {
		t.Fatal(err)
	}
	h.fails["systemctl enable containerd.service"] = true
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// A unit with the content of the bundle's is restarted with the bundle's program, and then with
// the host's.
func TestReplaceTheProgramOfAUnit(t *testing.T) {
	t.Parallel()
	h, staged := newEquippedHost(t)
	h.write("/etc/systemd/system/containerd.service", "[Service]\n")
	h.write("/usr/local/bin/containerd", "of others")
	h.before = h.tree()
	if err := h.install(staged); err != nil {
		t.Fatal(err)
	}
	isOf := func(verb string) func(string) bool {
		return func(line string) bool { return line == "systemctl "+verb+" containerd.service" }
	}
	if stop := slices.IndexFunc(h.ran, isOf("stop")); stop < 0 || slices.IndexFunc(h.ran, isOf("start")) < stop {
		t.Errorf("ran %q", h.ran)
	}
	h.ran = nil
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
	if stop := slices.IndexFunc(h.ran, isOf("stop")); stop < 0 || slices.IndexFunc(h.ran, isOf("start")) < stop {
		t.Errorf("ran %q", h.ran)
	}
}

// What belongs to a package, or may, is never replaced, and nothing is hidden that would not
// come back.
func TestThreat63_NeverReplaced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*host, *installation.Staged)
		message string
	}{
		"a program of a package": {func(h *host, _ *installation.Staged) { h.origins["/usr/local/bin/kubelet"] = protocol.OriginPackage },
			"/usr/local/bin/kubelet, which a package of the operating system owns"},
		"a program that may be of a package": {func(h *host, _ *installation.Staged) { h.origins["/usr/local/bin/kubelet"] = "" },
			"/usr/local/bin/kubelet, whose owner is unknown"},
		"a folder": {func(h *host, _ *installation.Staged) { h.write("/usr/local/bin/ctr/file", "") }, "/usr/local/bin/ctr, which is no file"},
		"a file that was kept before": {func(h *host, _ *installation.Staged) { h.write("/usr/local/bin/.before-elemental-kubelet", "") },
			"/usr/local/bin/kubelet, for which an earlier installation has kept /usr/local/bin/.before-elemental-kubelet"},
		"a unit that systemd prefers": {func(h *host, staged *installation.Staged) {
			for n := range staged.Manifest.Files {
				if f := &staged.Manifest.Files[n]; f.Name == "units/containerd.service" {
					f.Path = "/usr/local/lib/systemd/system/containerd.service"
				}
			}
			h.write("/run/systemd/system/containerd.service", "")
		}, "/run/systemd/system/containerd.service, which systemd prefers to /usr/local/lib/systemd/system/containerd.service"},
	} {
		h, staged := newEquippedHost(t)
		test.prepare(h, &staged)
		before := h.tree()
		err := h.install(staged)
		if err == nil || !strings.Contains(err.Error(), test.message) || !strings.HasSuffix(err.Error(), ": remove them from the host, or leave them out of the bundle") {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, h.tree()); diff != "" || len(h.ran) > 0 {
			t.Errorf("%s: ran %q, -before +after:\n%s", name, h.ran, diff)
		}
	}
}

// The host must start what was installed: a drop-in may lead to another kubelet.
func TestReplacedProgramsAreStarted(t *testing.T) {
	t.Parallel()
	h, staged := newEquippedHost(t)
	h.found.Kubelet.Path, h.found.ContainerRuntime.Path = "/usr/bin/kubelet", ""
	err := h.install(staged)
	if err == nil || !strings.Contains(err.Error(), "the host starts /usr/bin/kubelet instead of /usr/local/bin/kubelet, no containerd instead of /usr/local/bin/containerd") {
		t.Error(err)
	}
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
}

// Somebody who has changed a file since gets neither that nor the former one overwritten.
func TestReplacedFileThatWasChanged(t *testing.T) {
	t.Parallel()
	h, staged := newEquippedHost(t)
	if err := h.install(staged); err != nil {
		t.Fatal(err)
	}
	h.write("/usr/local/bin/kubelet", "changed")
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.read("/usr/local/bin/kubelet") != "changed" || h.read("/usr/local/bin/.before-elemental-kubelet") != "of others" {
		t.Errorf("the host has %v", h.tree())
	}
	if !strings.Contains(h.log.String(), "former=/usr/local/bin/.before-elemental-kubelet") {
		t.Errorf("logged %s", h.log.String())
	}
}

// A host that lacks only a container runtime keeps its programs of Kubernetes and plugins.
func TestHostThatLacksOnlyTheRuntime(t *testing.T) {
	t.Parallel()
	equip := func() *host {
		h := newHost(t)
		h.write("/usr/lib/systemd/system/kubelet.service", "[Service]\n")
		h.write("/opt/cni/bin/loopback", "of a package")
		h.origins["/opt/cni/bin/loopback"] = protocol.OriginPackage
		h.found.Kubelet.Path, h.found.Kubeadm.Path, h.found.CNIPlugins.Path = "/usr/bin/kubelet", "/usr/bin/kubeadm", "/opt/cni/bin"
		h.before = h.tree()
		return h
	}
	h := equip()
	staged := h.stage(version, nil)
	for range 2 {
		if err := h.install(staged); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, f := range staged.Manifest.Files {
		if f.Kind != bundle.KindImage && digest(h.read(f.Path)) == f.SHA256 {
			got = append(got, f.Name)
		}
	}
	want := []string{"bin/containerd", "bin/ctr", "files/etc/containerd/config.toml", "files/etc/modules-load.d/kubernetes.conf",
		"files/etc/sysctl.d/kubernetes.conf", "units/containerd.service"}
	if diff := cmp.Diff(want, got); diff != "" || h.isEnabled("kubelet.service") || !h.active["containerd.service"] {
		t.Errorf("installed -want +got:\n%s", diff)
	}
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
	// A bundle without one does not help.
	h = equip()
	if err := h.install(h.stage(version, map[string]string{"units/containerd.service": "", "bin/containerd": "", "bin/ctr": ""})); err != nil {
		t.Fatal(err)
	}
	h.checkBare("not installed")
}
