package installation_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/namespaces"
)

// stageOpt unpacks a bundle for hosts whose /usr can't be written to.
func (h *host) stageOpt() installation.Staged {
	return h.stage(version, map[string]string{
		"bin/containerd": "", "bin/ctr": "", "bin/kubeadm": "", "bin/kubectl": "", "bin/kubelet": "",
		"opt/containerd": "containerd", "opt/ctr": "ctr", "opt/kubeadm": "kubeadm", "opt/kubectl": "kubectl", "opt/kubelet": "kubelet",
	})
}

// checkReadOnly installs a bundle that does not fit, and one that does, on a host whose /usr
// can't be written to.
func (h *host) checkReadOnly(installer *installation.Installer) {
	h.t.Helper()
	ctx := context.WithoutCancel(h.t.Context())
	err := installer.Install(ctx, h.stage(version, nil), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "nothing was installed, because /usr/local/bin is on a file system that can't be written to, and /usr/local/bin/containerd belongs there") {
		h.t.Error(err)
	}
	if diff := cmp.Diff(h.before, h.tree()); diff != "" || len(h.ran) > 0 {
		h.t.Errorf("ran %q, -before +after:\n%s", h.ran, diff)
	}
	staged := h.stageOpt()
	if err := installer.Install(ctx, staged, func(string) {}); err != nil {
		h.t.Fatal(err)
	}
	h.checkInstalled("installed", staged)
	if err := installer.Remove(ctx); err != nil {
		h.t.Fatal(err)
	}
	h.checkBare("removed")
}

func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.disk.readOnly = filepath.Join(h.root, "/usr")
	h.checkReadOnly(h.installer())
}

// The test runs in a new namespace of mounts, and mounts /usr of the host read-only there.
func TestReadOnlyMount(t *testing.T) {
	if !namespaces.Enter(t, syscall.CLONE_NEWNS) {
		return
	}
	h := newHost(t)
	usr := filepath.Join(h.root, "/usr")
	for _, mount := range []struct {
		source, target string
		flags          uintptr
	}{{"", "/", syscall.MS_REC | syscall.MS_PRIVATE}, {usr, usr, syscall.MS_BIND}, {"", usr, syscall.MS_REMOUNT | syscall.MS_BIND | syscall.MS_RDONLY}} {
		if err := syscall.Mount(mount.source, mount.target, "", mount.flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(usr, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(usr, "x"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
	installer := h.installer()
	installer.Disk = unsynced{}
	h.checkReadOnly(installer)
}
