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

func TestWorkerFollows(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker(former)
	report := b.apply(to("10.0.0.2", former), nil)
	if report != (protocol.EndpointReport{Kubeconfigs: current}) || b.restarts != 1 || b.runs != kubeconfig(current) {
		t.Errorf("%d restarts, %+v, the kubelet has read\n%s", b.restarts, report, b.runs)
	}
}

// A kubelet that stays where it is needs no restart.
func TestNothingToFollow(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{"the endpoint": current, "somebody's own load balancer": "192.0.2.1:6443"} {
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
		t.Errorf("a host that is no node: %+v, %d writes", report, b.disk.writes)
	}
}

func TestControlPlaneFollows(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.controlPlane(former, "10.0.0.7:6443")
	b.write("/etc/kubernetes/bootstrap-kubelet.conf", kubeconfig(former))
	b.apply(to("10.0.0.2", former), nil)
	if got := b.servers(current); got != "admin bootstrap-kubelet kubelet super-admin" || b.restarts != 1 {
		t.Errorf("%s follow, %d restarts", got, b.restarts)
	}
}

// The host that has the former endpoint keeps its kubelet at its own API server,
// and its controller manager and scheduler as well; clients of the cluster move.
func TestLocalServersStay(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"10.0.0.7:6443", "[2001:db8:0::7]:6443"} {
		b := newBox(t)
		b.controlPlane(own, own)
		b.apply(to("10.0.0.2", own), nil)
		if got := b.servers(current); got != "admin super-admin" || b.restarts != 0 {
			t.Errorf("%s: %s follow, %d restarts", own, got, b.restarts)
		}
	}
}

// An address that was the host's is not local any more.
func TestFollowsWhenTheOwnAddressChanged(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.controlPlane(former, former)
	b.nics["eth0"] = []string{"10.0.0.7/24"}
	b.apply(to("10.0.0.7", former), nil)
	if got := b.servers("10.0.0.7:6443"); got != "admin controller-manager kubelet scheduler super-admin" || b.restarts != 1 {
		t.Errorf("%s follow, %d restarts", got, b.restarts)
	}
}

// A worker that was given a dead host's address has no API server there, and a
// control-plane host that has the former VIP for the moment won't keep it.
func TestAddressesThatAreNotLocal(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker("10.0.0.7:6443")
	b.apply(to("10.0.0.2", "10.0.0.7:6443"), nil)
	if b.runs != kubeconfig(current) {
		t.Error("the worker has not followed")
	}
	b = newBox(t)
	b.controlPlane("10.0.0.9:6443", "10.0.0.7:6443")
	b.nics["eth0"] = append(b.nics["eth0"], "10.0.0.9/32")
	b.apply(&protocol.Endpoint{Host: "10.0.0.9", Port: 6443, VIP: true}, nil)
	b.broken["ip"] = errors.New("timed out")
	if _, err := b.keeper().Apply(t.Context(), to("10.0.0.2", "10.0.0.9:6443"), nil); err == nil || b.runs != kubeconfig(current) {
		t.Errorf("the kubelet has not followed: %v", err)
	}
}

func TestDistributionsFollow(t *testing.T) {
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

// One file that can't be dealt with keeps no other one back, and is named.
func TestOneBadFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(b *box, path string) error
		says string
	}{
		"no YAML":              {func(_ *box, path string) error { return os.WriteFile(path, []byte("clusters: ["), 0o600) }, "not the YAML"},
		"a link to elsewhere":  {func(b *box, path string) error { return os.Symlink(filepath.Join(b.root, "secret"), path) }, "outside of its folder"},
		"a folder":             {func(_ *box, path string) error { return os.Mkdir(path, 0o700) }, "no file"},
		"too much of anything": {func(_ *box, path string) error { return os.WriteFile(path, make([]byte, 2<<20), 0o600) }, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.worker(former)
			b.write("secret", kubeconfig(former))
			if err := test.make(b, filepath.Join(b.root, "/etc/kubernetes/admin.conf")); err != nil {
				t.Fatal(err)
			}
			report, err := b.keeper().Apply(t.Context(), to("10.0.0.2", former), nil)
			if err == nil || !strings.Contains(report.Message, test.says) || !strings.Contains(report.Message, "/etc/kubernetes/admin.conf") || report.Kubeconfigs != "" {
				t.Errorf("%+v: %v", report, err)
			}
			if b.servers(current) != "kubelet" || b.restarts != 1 || b.read("secret") != kubeconfig(former) {
				t.Errorf("%s follow, %d restarts", b.servers(current), b.restarts)
			}
		})
	}
}

// A link within the folder stays one, and so does a folder that is a link.
func TestLinksWithin(t *testing.T) {
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

// What somebody changes or removes at the same time is theirs; the next pass
// looks again.
func TestFilesThatChangeMeanwhile(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(path string) error{
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
					if err := meddle(path); err != nil {
						t.Error(err)
					}
				}
			}
			if report, err := b.keeper().Apply(t.Context(), to("10.0.0.2", former), nil); err == nil || report.Message == "" || b.restarts != 0 {
				t.Errorf("%+v, %d restarts: %v", report, b.restarts, err)
			}
			if b.servers(current) != "" {
				t.Error("their file is gone")
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
		report, err := b.keeper().Apply(t.Context(), to("10.0.0.2", former), nil)
		if err == nil || !strings.Contains(report.Message, "no space left") || report.Kubeconfigs != "" {
			t.Errorf("%+v: %v", report, err)
		}
		if b.restarts != 0 || b.servers(former) != "kubelet" {
			t.Errorf("%d restarts", b.restarts)
		}
		b.disk.full = ""
		if b.apply(to("10.0.0.2", former), nil); b.runs != kubeconfig(current) || b.restarts != 1 {
			t.Error("the kubelet has not followed")
		}
	}
}

// A kubelet that couldn't be restarted is not said to run with the endpoint,
// and is restarted later, also when nobody wants an endpoint then.
func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]*protocol.Endpoint{"the same": to("10.0.0.2", former), "none": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.worker(former)
			b.broken["systemctl"] = errors.New("connection timed out")
			for range 2 {
				report, err := b.keeper().Apply(t.Context(), to("10.0.0.2", former), nil)
				if err == nil || !strings.Contains(report.Message, "restarting the kubelet: connection timed out") || report.Kubeconfigs != "" {
					t.Errorf("%+v: %v", report, err)
				}
			}
			delete(b.broken, "systemctl")
			b.apply(next, nil)
			if b.restarts != 1 || b.runs != kubeconfig(current) {
				t.Errorf("%d restarts", b.restarts)
			}
		})
	}
}

func TestEndpointThatIsNone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.worker(former)
	if report, err := b.keeper().Apply(t.Context(), to("a b", former), nil); err == nil || report.Message != err.Error() || b.disk.writes != 0 {
		t.Errorf("%+v: %v", report, err)
	}
}
