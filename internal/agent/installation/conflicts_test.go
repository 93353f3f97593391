package installation_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/installation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A file of somebody else is never replaced, and nothing is installed beside it.
func TestThreat63_FilesInTheWay(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("/usr/local/bin/kubelet", "of a package")
	h.write("/etc/containerd/config.toml", "of others")
	h.write("/opt/cni/bin/loopback", "unknown")
	h.write("/usr/local/bin/ctr", "of others")
	if err := os.Symlink("/usr/bin/kubeadm", filepath.Join(h.root, "/usr/local/bin/kubeadm")); err != nil {
		t.Fatal(err)
	}
	h.origins["/usr/local/bin/kubelet"], h.origins["/opt/cni/bin/loopback"] = protocol.OriginPackage, ""
	before := h.tree()
	err := h.install(h.stage(version, nil))
	want := "nothing was installed, because files are in the way: /usr/local/bin/ctr, which no package owns; /usr/local/bin/kubeadm, which no package owns; " +
		"/usr/local/bin/kubelet, which a package of the operating system owns; and 2 more: remove them from the host, leave them out of the bundle, or have them replaced (spec.programs of the ElementalMachineTemplate)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if diff := cmp.Diff(before, h.tree()); diff != "" || len(h.ran) > 0 {
		t.Errorf("ran %q, -before +after:\n%s", h.ran, diff)
	}
	if left, err := (installation.Record{Files: h.files}).Leftovers(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("leftovers %v, %v", left, err)
	}
}

// A unit of the host is not hidden by one of the bundle: the reset could not bring it back.
func TestThreat63_UnitInTheWay(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("/usr/lib/systemd/system/containerd.service", "[Service]\n")
	h.origins["/usr/lib/systemd/system/containerd.service"] = protocol.OriginPackage
	err := h.install(h.stage(version, nil))
	if err == nil || !strings.Contains(err.Error(), "/usr/lib/systemd/system/containerd.service, which a package of the operating system owns") || len(h.ran) > 0 {
		t.Errorf("ran %q, %v", h.ran, err)
	}
	// Without a container runtime the bundle fits.
	bare := h.stage(version, map[string]string{"units/containerd.service": "", "bin/containerd": "", "bin/ctr": "", "images/pause.tar": ""})
	if err := h.install(bare); err != nil {
		t.Error(err)
	}
}

// A file that is there with the same content is used, and remains.
func TestFilesThatAreThereAlready(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("/opt/cni/bin/loopback", "loopback")
	if err := os.Chmod(filepath.Join(h.root, "/opt/cni/bin/loopback"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.before = h.tree()
	staged := h.stage(version, nil)
	if err := h.install(staged); err != nil {
		t.Fatal(err)
	}
	h.checkInstalled("installed", staged)
	if err := h.installer().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.checkBare("removed")
}
