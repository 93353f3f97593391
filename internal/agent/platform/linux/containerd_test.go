package linux_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
)

// The data of containerd goes with what is mounted and what still runs there, and nothing
// else does.
func TestRemoveContainerd(t *testing.T) {
	b, l := newBox(t, map[string]string{
		"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/a": "", "/run/containerd/containerd.sock": "", "/var/lib/containerd2/a": "", "/run/nri/nri.sock": "",
		"/opt/containerd/lib/a": "",
		"/proc/self/mountinfo":  "1 0 0:1 / / rw\n2 1 0:2 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/a/rootfs rw\n3 1 0:3 / /run/lock rw\n",
	})
	if err := os.Mkdir(filepath.Join(b.root, "opt/containerd/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.process(21, 1, "containerd-shim-runc-v2", "containerd-shim-runc-v2 -namespace k8s.io -id a")
	b.process(22, 1, "containerd-shim-runc-v2", "containerd-shim-runc-v2 -namespace moby -id a")
	for range 2 {
		if err := l.RemoveContainerd(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if b.exists("/var/lib/containerd") || b.exists("/run/containerd") || b.exists("/run/nri") || b.exists("/opt/containerd/bin") ||
		!b.exists("/opt/containerd/lib/a") || !b.exists("/var/lib/containerd2/a") {
		t.Error("removed too much or too little")
	}
	if !slices.Equal(b.unmounted, []string{"/run/containerd/io.containerd.runtime.v2.task/k8s.io/a/rootfs"}) || !slices.Equal(b.killed, []int{21}) {
		t.Errorf("unmounted %v, killed %v", b.unmounted, b.killed)
	}
}

// A disk of its own for images is emptied and stays. What can't be unmounted is not removed.
func TestRemoveContainerdFromADisk(t *testing.T) {
	b, l := newBox(t, map[string]string{
		"/var/lib/containerd/lost+found/a": "", "/var/lib/containerd/content/a": "", "/var/lib/containerd/tmpmounts/a": "",
		"/proc/self/mountinfo": "1 0 0:1 / / rw\n2 1 0:2 / /var/lib/containerd rw\n3 2 0:3 / /var/lib/containerd/tmpmounts rw\n",
	})
	b.stuck = "/var/lib/containerd/tmpmounts"
	if err := l.RemoveContainerd(t.Context()); err == nil {
		t.Error("a mount is stuck, and there is no error")
	}
	if !b.exists("/var/lib/containerd/lost+found/a") || !b.exists("/var/lib/containerd/tmpmounts/a") || b.exists("/var/lib/containerd/content") || len(b.unmounted) > 0 {
		t.Errorf("removed too much or too little; unmounted %v", b.unmounted)
	}
}

// installed is an Installation with one file.
type installed struct{ path string }

func (i installed) Has(path string) bool { return path == i.path }

func (installed) Leftovers(context.Context) ([]string, error) {
	return []string{"bundle of Kubernetes v1.36.3 (1 files)"}, nil
}

func TestInstalledBundle(t *testing.T) {
	b, _ := newBox(t, map[string]string{"/usr/local/bin/kubelet": ""})
	l := linux.New(linux.Options{Root: b.root, Commands: b, Clock: b, Kernel: b, Installation: installed{"/usr/local/bin/kubelet"}})
	found, err := l.Cleanliness(t.Context())
	if err != nil || found.Clean || !slices.Contains(found.Leftovers, "bundle of Kubernetes v1.36.3 (1 files)") {
		t.Errorf("got %+v, %v", found, err)
	}
	if got := l.Origin(t.Context(), "/usr/local/bin/kubelet"); got != "Bundle" {
		t.Errorf("its origin is %s", got)
	}
	if got := l.Origin(t.Context(), "/usr/local/bin/kubeadm"); got != "Other" {
		t.Errorf("the origin of another file is %s", got)
	}
}
