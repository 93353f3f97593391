package installation_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestInstallAndRemove(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	staged := h.stage(version, nil)
	var steps []string
	if err := h.installer().Install(t.Context(), staged, func(step string) { steps = append(steps, step) }); err != nil {
		t.Fatal(err)
	}
	h.checkInstalled("installed", staged)
	image := filepath.Join(staged.Folder, "images/pause.tar")
	want := []string{
		"systemctl daemon-reload", "systemctl restart systemd-modules-load.service", "systemctl restart systemd-sysctl.service",
		"systemctl enable containerd.service", "systemctl start containerd.service",
		"/usr/local/bin/ctr --address /run/containerd/containerd.sock --namespace k8s.io images import " + image,
		"systemctl enable kubelet.service",
	}
	if diff := cmp.Diff(want, h.ran); diff != "" {
		t.Errorf("commands -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"files", "units", "containerd", "image 1 of 1"}, steps); diff != "" {
		t.Errorf("steps -want +got:\n%s", diff)
	}
	record := installation.Record{Files: h.files}
	if left, err := record.Leftovers(t.Context()); err != nil || !slices.Equal(left, []string{"bundle of Kubernetes v1.36.3 (12 files)"}) {
		t.Errorf("leftovers %v, %v", left, err)
	}
	if !record.Has("/usr/local/bin/kubelet") || record.Has("/usr/bin/kubelet") {
		t.Error("the record does not know its files")
	}
	// Nothing is done twice.
	h.ran = nil
	if err := h.install(staged); err != nil || len(h.ran) > 0 {
		t.Errorf("ran %q, %v", h.ran, err)
	}
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = []string{
		"systemctl stop kubelet.service", "systemctl disable kubelet.service", "systemctl stop containerd.service",
		"systemctl disable containerd.service", "remove containerd's data", "systemctl daemon-reload",
	}
	if diff := cmp.Diff(want, h.ran); diff != "" {
		t.Errorf("commands -want +got:\n%s", diff)
	}
	h.checkBare("removed")
	h.ran = nil
	if err := h.installer().Remove(t.Context()); err != nil || len(h.ran) > 0 {
		t.Errorf("ran %q, %v", h.ran, err)
	}
}

// Without a container runtime in the bundle the host's is used, and its data stays.
func TestBundleWithoutContainerd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("/run/crio.sock", "")
	h.write("/var/lib/containerd/image", "of others")
	h.found.ContainerRuntime = protocol.ContainerRuntime{Name: protocol.RuntimeContainerd, Socket: "/run/crio.sock"}
	staged := h.stage(version, map[string]string{"units/containerd.service": "", "bin/containerd": "", "bin/ctr": ""})
	if err := h.install(staged); err != nil {
		t.Fatal(err)
	}
	if got := h.ran[3]; got != "ctr --address /run/crio.sock --namespace k8s.io images import "+filepath.Join(staged.Folder, "images/pause.tar") {
		t.Errorf("ran %s", got)
	}
	if err := h.installer().Remove(t.Context()); err != nil || h.read("/var/lib/containerd/image") != "of others" {
		t.Errorf("data of the host: %q, %v", h.read("/var/lib/containerd/image"), err)
	}
}

// Data that containerd had before the bundle stays, too.
func TestFormerDataOfContainerd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("/var/lib/containerd/former", "of others")
	if err := h.install(h.stage(version, nil)); err != nil {
		t.Fatal(err)
	}
	if err := h.installer().Remove(t.Context()); err != nil || h.read("/var/lib/containerd/former") != "of others" {
		t.Errorf("data of the host: %q, %v", h.read("/var/lib/containerd/former"), err)
	}
}

// What somebody has changed or added since stays when the bundle is removed.
func TestChangedFilesStay(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if err := h.install(h.stage(version, nil)); err != nil {
		t.Fatal(err)
	}
	h.write("/etc/containerd/config.toml", "version = 3 # changed")
	h.write("/opt/cni/bin/calico", "added")
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.read("/etc/containerd/config.toml") == "" || h.read("/opt/cni/bin/calico") == "" || h.read("/opt/cni/bin/loopback") != "" {
		t.Errorf("the host has %v", h.tree())
	}
	if !strings.Contains(h.log.String(), "path=/etc/containerd/config.toml") || strings.Contains(h.log.String(), "loopback") {
		t.Errorf("logged %s", h.log.String())
	}
}

// A bundle of another version replaces one of ours.
func TestAnotherBundle(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	if err := h.install(h.stage("v1.35.4", map[string]string{"bin/crictl": "crictl"})); err != nil {
		t.Fatal(err)
	}
	next := h.stage(version, nil)
	if err := h.install(next); err != nil {
		t.Fatal(err)
	}
	h.checkInstalled("replaced", next)
	if h.read("/usr/local/bin/crictl") != "" {
		t.Error("the former bundle is still there")
	}
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
}

// Programs that an upgrade in place has put there are removed, before and after it.
func TestUpgradedFilesAreRemoved(t *testing.T) {
	t.Parallel()
	for _, upgraded := range []bool{false, true} {
		h := newHost(t)
		if err := h.install(h.stage("v1.35.4", nil)); err != nil {
			t.Fatal(err)
		}
		next := h.stage(version, nil)
		for range 2 {
			if err := (installation.Record{Files: h.files}).Accept(next.Manifest.Files); err != nil {
				t.Fatal(err)
			}
		}
		if upgraded {
			h.write("/usr/local/bin/kubelet", "kubelet "+version)
		}
		if err := h.installer().Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.checkBare("removed")
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*host)
		message string
	}{
		"containerd does not start": {func(h *host) { h.fails["systemctl start containerd.service"] = true }, "see journalctl --unit containerd"},
		"containerd does not serve": {func(h *host) { h.onRun = func(string) {} }, "containerd did not serve /run/containerd/containerd.sock within 1m0s"},
		"no unit of the kubelet":    {func(h *host) { h.fails["systemctl enable kubelet.service"] = true }, "put a unit of the kubelet into the bundle"},
	} {
		h := newHost(t)
		test.prepare(h)
		err := h.install(h.stage(version, nil))
		if err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := (installation.Record{Files: h.files}).Leftovers(t.Context()); err != nil || len(left) == 0 {
			t.Errorf("%s: no leftovers, %v", name, err)
		}
		h.fails = nil
		if err := h.installer().Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.checkBare(name)
	}
}

// Settings of the kernel that fail are for kubeadm to judge.
func TestKernelSettingsThatFail(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.fails["systemctl restart systemd-modules-load.service"] = true
	if err := h.install(h.stage(version, nil)); err != nil || !strings.Contains(h.log.String(), "systemd-modules-load.service") {
		t.Errorf("logged %s, %v", h.log.String(), err)
	}
}

// Somebody who changes a staged file does not get it installed.
func TestStagedFileThatChanged(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	staged := h.stage(version, nil)
	if err := os.WriteFile(filepath.Join(staged.Folder, "bin/kubelet"), []byte("forged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.install(staged); err == nil || !strings.Contains(err.Error(), "SHA-256") || h.read("/usr/local/bin/kubelet") != "" {
		t.Errorf("installed %q, %v", h.read("/usr/local/bin/kubelet"), err)
	}
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
}

func TestIsNeeded(t *testing.T) {
	t.Parallel()
	kubelet, kubeadm := protocol.Program{Path: "/usr/bin/kubelet"}, protocol.Program{Path: "/usr/bin/kubeadm"}
	runtime := protocol.ContainerRuntime{Path: "/usr/bin/containerd"}
	for name, test := range map[string]struct {
		found protocol.Kubernetes
		want  bool
	}{
		"bare":         {protocol.Kubernetes{}, true},
		"complete":     {protocol.Kubernetes{Kubelet: kubelet, Kubeadm: kubeadm, ContainerRuntime: runtime}, false},
		"no runtime":   {protocol.Kubernetes{Kubelet: kubelet, Kubeadm: kubeadm}, true},
		"only kubelet": {protocol.Kubernetes{Kubelet: kubelet, ContainerRuntime: runtime}, true},
		"only kubeadm": {protocol.Kubernetes{Kubeadm: kubeadm, ContainerRuntime: runtime}, true},
	} {
		h := newHost(t)
		h.found = test.found
		if got, err := h.installer().IsNeeded(t.Context(), protocol.Bundle{SHA256: digest(version)}); got != test.want || err != nil {
			t.Errorf("%s: got %t, %v", name, got, err)
		}
		if got, err := h.installer().IsNeeded(t.Context(), protocol.Bundle{SHA256: digest(version), Replace: true}); !got || err != nil {
			t.Errorf("%s: the programs are not replaced, %v", name, err)
		}
	}
	h := newHost(t)
	if err := h.install(h.stage(version, nil)); err != nil {
		t.Fatal(err)
	}
	for sha256, want := range map[string]bool{digest(version): false, digest("v1.36.4"): true} {
		if got, err := h.installer().IsNeeded(t.Context(), protocol.Bundle{SHA256: sha256, Replace: true}); got != want || err != nil {
			t.Errorf("with %s installed: %t, %v", version, got, err)
		}
	}
}

// An installation that is stopped is completed later.
func TestStoppedInstallation(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	staged := h.stage(version, nil)
	ctx, cancel := context.WithCancel(t.Context())
	onRun := h.onRun
	h.onRun = func(line string) {
		if onRun(line); line == "systemctl daemon-reload" {
			cancel()
		}
	}
	if err := h.installer().Install(ctx, staged, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if needed, err := h.installer().IsNeeded(t.Context(), protocol.Bundle{SHA256: staged.SHA256}); err != nil || !needed {
		t.Errorf("not needed: %v", err)
	}
	if err := h.install(staged); err != nil {
		t.Fatal(err)
	}
	h.checkInstalled("completed", staged)
}

// unsynced is the disk of this machine, whose other writers are not waited for.
type unsynced struct{ installation.OS }

func (unsynced) Sync() {}

// The installation works on the disk of this machine, too.
func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	installer, staged := h.installer(), h.stage(version, nil)
	installer.Disk = unsynced{}
	if err := installer.Install(t.Context(), staged, func(string) {}); err != nil {
		t.Fatal(err)
	}
	h.checkInstalled("installed", staged)
	if info, err := os.Stat(filepath.Join(h.root, "/opt/cni/bin")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder of CNI plugins is %v, %v", info, err)
	}
	if err := installer.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
}
