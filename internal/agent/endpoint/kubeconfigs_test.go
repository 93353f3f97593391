package endpoint_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestUpdatesWorker(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker(former)
	report := b.apply(to("10.0.0.2", former), nil)
	if report != (protocol.EndpointReport{Kubeconfigs: current}) || b.restarts != 1 || b.kubeletConfig != kubeconfig(current) {
		t.Errorf("%d restarts, %+v, the kubelet read\n%s", b.restarts, report, b.kubeletConfig)
	}
}

// A kubelet whose kubeconfig does not change is not restarted.
func TestUpdatesNothing(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{"the endpoint": current, "a load balancer of the user": "192.0.2.1:6443"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.controlPlane(server, "10.0.0.7:6443")
			report := b.apply(to("10.0.0.2", former), nil)
			if report != (protocol.EndpointReport{Kubeconfigs: current}) || b.disk.writes != 0 || len(b.ran) != 0 {
				t.Errorf("%+v, %d writes, ran %v", report, b.disk.writes, b.ran)
			}
		})
	}
	b := newBox(t)
	if report := b.apply(to("10.0.0.2", former), nil); report != (protocol.EndpointReport{}) || b.disk.writes != 0 {
		t.Errorf("a host that is not a node: %+v, %d writes", report, b.disk.writes)
	}
}

func TestUpdatesControlPlane(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.controlPlane(former, "10.0.0.7:6443")
	b.write("/etc/kubernetes/bootstrap-kubelet.conf", kubeconfig(former))
	b.apply(to("10.0.0.2", former), nil)
	if got := b.kubeconfigsOf(current); got != "admin bootstrap-kubelet kubelet super-admin" || b.restarts != 1 {
		t.Errorf("updated %s, %d restarts", got, b.restarts)
	}
}

// On the host of the former endpoint, the kubelet, the controller manager and
// the scheduler keep using the local API server; clients of the cluster are
// updated.
func TestKeepsLocalServers(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"10.0.0.7:6443", "[2001:db8:0::7]:6443"} {
		b := newBox(t)
		b.controlPlane(own, own)
		b.apply(to("10.0.0.2", own), nil)
		if got := b.kubeconfigsOf(current); got != "admin super-admin" || b.restarts != 0 {
			t.Errorf("%s: updated %s, %d restarts", own, got, b.restarts)
		}
	}
}

// An address that the host has lost is no longer local.
func TestUpdatesWhenTheLocalAddressChanged(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.controlPlane(former, former)
	b.nics["eth0"] = []string{"10.0.0.7/24"}
	b.apply(to("10.0.0.7", former), nil)
	if got := b.kubeconfigsOf("10.0.0.7:6443"); got != "admin controller-manager kubelet scheduler super-admin" || b.restarts != 1 {
		t.Errorf("updated %s, %d restarts", got, b.restarts)
	}
}

// A worker that reuses a dead host's address has no local API server, and a
// control-plane host will lose the former VIP that it still has.
func TestAddressesThatAreNotLocal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker("10.0.0.7:6443")
	b.apply(to("10.0.0.2", "10.0.0.7:6443"), nil)
	if b.kubeletConfig != kubeconfig(current) {
		t.Error("the worker's kubelet was not updated")
	}
	b = newBox(t)
	b.controlPlane("10.0.0.9:6443", "10.0.0.7:6443")
	b.nics["eth0"] = append(b.nics["eth0"], "10.0.0.9/32")
	b.apply(&protocol.Endpoint{Host: "10.0.0.9", Port: 6443, VIP: true}, nil)
	b.broken["ip"] = errors.New("timed out")
	if _, err := b.applier().Apply(t.Context(), to("10.0.0.2", "10.0.0.9:6443"), nil); err == nil || b.kubeletConfig != kubeconfig(current) {
		t.Errorf("the kubelet was not updated: %v", err)
	}
}

func TestUpdatesDistributions(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	const form = "# ours\ntoken: secret\nserver: https://SERVER\nnode-label: [a=b]\n"
	text := func(server string) string { return strings.Replace(form, "SERVER", server, 1) }
	files := map[string][2]string{
		"/etc/rancher/k3s/config.yaml":             {text(former), text(current)},
		"/etc/rancher/rke2/config.yaml":            {text("10.0.0.1:9345"), text("10.0.0.2:9345")},
		"/etc/rancher/rke2/config.yaml.d/50-x.yml": {text(former), text(current)},
		"/etc/rancher/rke2/config.yaml.d/50-x.bak": {text(former), text(former)},
		"/etc/rancher/k3s/k3s.yaml":                {kubeconfig("127.0.0.1:6443"), kubeconfig("127.0.0.1:6443")},
	}
	for name, content := range files {
		b.write(name, content[0])
	}
	if report := b.apply(to("10.0.0.2", former), nil); report.Kubeconfigs != current || b.restarts != 0 {
		t.Errorf("%+v, %d restarts", report, b.restarts)
	}
	for name, content := range files {
		if got := b.read(name); got != content[1] {
			t.Errorf("%s has\n%s", name, got)
		}
	}
}

func TestKeepsModeAndOwner(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.controlPlane(former, "10.0.0.7:6443")
	path := filepath.Join(b.root, "/etc/kubernetes/admin.conf")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	b.apply(to("10.0.0.2", former), nil)
	if want := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()); b.disk.owners["admin.conf"] != want || b.disk.owners["kubelet.conf"] != want {
		t.Errorf("the owners are %v", b.disk.owners)
	}
	for name, mode := range map[string]os.FileMode{"admin.conf": 0o640, "kubelet.conf": 0o600} {
		info, err := os.Lstat(filepath.Join(b.root, "/etc/kubernetes", name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// An invalid file is reported and does not prevent the update of the others.
func TestOneBadFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(b *box, path string) error
		says string
	}{
		"no YAML":             {func(_ *box, path string) error { return os.WriteFile(path, []byte("clusters: ["), 0o600) }, "not the YAML"},
		"a link to elsewhere": {func(b *box, path string) error { return os.Symlink(filepath.Join(b.root, "secret"), path) }, "outside of its folder"},
		"a folder":            {func(_ *box, path string) error { return os.Mkdir(path, 0o700) }, "no file"},
		"too large":           {func(_ *box, path string) error { return os.WriteFile(path, make([]byte, 2<<20), 0o600) }, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.worker(former)
			b.write("secret", kubeconfig(former))
			if err := test.make(b, filepath.Join(b.root, "/etc/kubernetes/admin.conf")); err != nil {
				t.Fatal(err)
			}
			report, err := b.applier().Apply(t.Context(), to("10.0.0.2", former), nil)
			if err == nil || !strings.Contains(report.Message, test.says) || !strings.Contains(report.Message, "/etc/kubernetes/admin.conf") || report.Kubeconfigs != "" {
				t.Errorf("%+v: %v", report, err)
			}
			if b.kubeconfigsOf(current) != "kubelet" || b.restarts != 1 || b.read("secret") != kubeconfig(former) {
				t.Errorf("updated %s, %d restarts", b.kubeconfigsOf(current), b.restarts)
			}
		})
	}
}

// Links inside the folder, and a folder that is a link, stay links.
func TestKeepsLinksInsideTheFolder(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("/data/kubernetes/kubelet-real.conf", kubeconfig(former))
	if err := errors.Join(
		os.MkdirAll(filepath.Join(b.root, "etc"), 0o755),
		os.Symlink(filepath.Join(b.root, "/data/kubernetes"), filepath.Join(b.root, "/etc/kubernetes")),
		os.Symlink("kubelet-real.conf", filepath.Join(b.root, "/data/kubernetes/kubelet.conf")),
	); err != nil {
		t.Fatal(err)
	}
	b.apply(to("10.0.0.2", former), nil)
	link, err := os.Readlink(filepath.Join(b.root, "/etc/kubernetes/kubelet.conf"))
	if err != nil || link != "kubelet-real.conf" || b.read("/data/kubernetes/kubelet-real.conf") != kubeconfig(current) || b.restarts != 1 {
		t.Errorf("the link leads to %q, %d restarts: %v", link, b.restarts, err)
	}
}

// A file that another program changes or removes at the same time is not
// overwritten; the next call reads it again.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return os.WriteFile(path, []byte(kubeconfig("192.0.2.1:6443")), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.worker(former)
			path := filepath.Join(b.root, "/etc/kubernetes/kubelet.conf")
			b.disk.beforeAttributes = func(temporary string) {
				if filepath.Dir(temporary) == filepath.Dir(path) {
					b.disk.beforeAttributes = nil
					if err := change(path); err != nil {
						t.Error(err)
					}
				}
			}
			if report, err := b.applier().Apply(t.Context(), to("10.0.0.2", former), nil); err == nil || report.Message == "" || b.restarts != 0 {
				t.Errorf("%+v, %d restarts: %v", report, b.restarts, err)
			}
			if b.kubeconfigsOf(current) != "" {
				t.Error("the other program's change was overwritten")
			}
			b.apply(to("10.0.0.2", former), nil)
		})
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"", "/var/lib/elemental", "/etc/kubernetes"} {
		b := newBox(t)
		b.worker(former)
		b.disk.full = filepath.Join(b.root, folder)
		report, err := b.applier().Apply(t.Context(), to("10.0.0.2", former), nil)
		if err == nil || !strings.Contains(report.Message, "no space left") || report.Kubeconfigs != "" {
			t.Errorf("%+v: %v", report, err)
		}
		if b.restarts != 0 || b.kubeconfigsOf(former) != "kubelet" {
			t.Errorf("%d restarts", b.restarts)
		}
		b.disk.full = ""
		if b.apply(to("10.0.0.2", former), nil); b.kubeletConfig != kubeconfig(current) || b.restarts != 1 {
			t.Error("the kubelet was not updated")
		}
	}
}

// If the restart of the kubelet fails, the report has no endpoint, and a later
// call restarts the kubelet, even if the plan has no endpoint then.
func TestFailedRestart(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]*protocol.Endpoint{"the same": to("10.0.0.2", former), "none": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.worker(former)
			b.broken["systemctl"] = errors.New("connection timed out")
			for range 2 {
				report, err := b.applier().Apply(t.Context(), to("10.0.0.2", former), nil)
				if err == nil || !strings.Contains(report.Message, "restarting the kubelet: connection timed out") || report.Kubeconfigs != "" {
					t.Errorf("%+v: %v", report, err)
				}
			}
			delete(b.broken, "systemctl")
			b.apply(next, nil)
			if b.restarts != 1 || b.kubeletConfig != kubeconfig(current) {
				t.Errorf("%d restarts", b.restarts)
			}
		})
	}
}

func TestInvalidEndpoint(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker(former)
	if report, err := b.applier().Apply(t.Context(), to("a b", former), nil); err == nil || report.Message != err.Error() || b.disk.writes != 0 {
		t.Errorf("%+v: %v", report, err)
	}
}
