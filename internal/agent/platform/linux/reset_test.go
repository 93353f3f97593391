package linux_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
)

const filter = `*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:MINE - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -j MINE
COMMIT
`

// node returns a host that ran a control-plane node.
func node(t *testing.T) (*box, *linux.Platform) {
	t.Helper()
	b, l := newBox(t, map[string]string{
		"/etc/kubernetes/kubelet.conf":        "x",
		"/etc/kubernetes/admin.conf":          "x",
		"/tmp/kubeadm.yml":                    "x",
		"/etc/kubernetes/patches/mine.yaml":   "keep",
		"/etc/kubernetes/manifests/etcd.yaml": "x",
		"/etc/kubernetes.before-x/admin.conf": "x",
		"/etc/kubernetes/pki/ca.crt":          "x",
		"/var/lib/kubelet/config.yaml":        "x",
		"/var/lib/kubelet/pods/p/volumes/v":   "x",
		"/sys/fs/cgroup/cpu/kubepods/tasks":   "x", "/sys/fs/cgroup/pids/kubepods/tasks": "x",
		"/var/lib/etcd/member/snap/db":                  "x",
		"/var/lib/cni/networks/pods/10.244.0.2":         "x",
		"/var/lib/rancher/k3s/agent/images/a.tar":       "keep",
		"/var/lib/rancher/k3s/agent/kubelet.kubeconfig": "x",
		"/etc/cni/net.d/10-lab.conflist":                "keep",
		"/etc/cni/net.d/05-calico.conflist":             "x",
		"/usr/local/bin/kubeadm":                        "",
		"/proc/self/mountinfo": "1 0 0:1 / / rw\n2 1 0:2 / /var/lib/kubelet/pods/p/volumes/v rw\n" +
			"3 2 0:3 / /var/lib/kubelet/pods/p/volumes/v/w rw\n4 1 0:4 / /var/lib/kubelet-other rw\n",
		"/proc/uptime": "100.00 1\n",
	})
	b.process(10, 1, "kubelet", "/usr/bin/kubelet --config x")
	b.process(20, 1, "containerd-shim", "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id x")
	b.process(21, 20, "etcd", "etcd")
	b.process(30, 1, "containerd-shim", "/usr/bin/containerd-shim-runc-v2 -namespace moby -id x")
	b.process(31, 30, "nginx", "nginx")
	b.interfaces = []platform.NetworkInterface{nic("eth0"), nic("cni0"), nic("docker0")}
	b.answers["iptables-save"] = filter
	b.answers["nft list tables"] = "table ip kube-proxy\ntable inet mine\n"
	return b, l
}

func TestCleanlinessListsEveryKindOfLeftover(t *testing.T) {
	_, l := node(t)
	got, err := l.Cleanliness(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"container of Kubernetes", "process kubelet", "2 mounts /var/lib/kubelet/*", "2 files /etc/kubernetes/*.conf",
		"file /etc/kubernetes/manifests/etcd.yaml", "file /etc/kubernetes/pki/ca.crt", "file /var/lib/kubelet/config.yaml",
		"file /var/lib/kubelet/pods/p", "file /var/lib/etcd/member", "file /var/lib/cni/networks/pods/10.244.0.2",
		"file /var/lib/rancher/k3s/agent/kubelet.kubeconfig", "2 cgroups /sys/fs/cgroup/*/kubepods*", "interface cni0", "packet filter iptables CNI-HOSTPORT-DNAT",
		"packet filter iptables KUBE-SERVICES", "packet filter table ip kube-proxy",
	}
	if diff := cmp.Diff(want, got.Leftovers); diff != "" || got.Clean {
		t.Errorf("clean: %t, -want +got:\n%s", got.Clean, diff)
	}
}

func TestNewHostIsClean(t *testing.T) {
	b, l := newBox(t, map[string]string{
		"/etc/kubernetes/manifests/.keep/x": "", "/var/lib/etcd/lost+found/x": "", "/etc/cni/net.d/10-lab.conflist": "x",
		"/var/lib/rancher/k3s/agent/images/a.tar": "x", "/proc/uptime": "3.00 1\n",
	})
	if err := removeAll(b, "/etc/kubernetes/manifests"); err != nil {
		t.Fatal(err)
	}
	// systemd restarts an enabled kubelet that has no configuration again and again.
	b.process(10, 1, "kubelet", "/usr/bin/kubelet")
	b.interfaces = []platform.NetworkInterface{nic("eth0"), nic("docker0"), nic("veth1")}
	b.answers["iptables-save"] = "*nat\n:DOCKER - [0:0]\nCOMMIT\n"
	got, err := l.Cleanliness(t.Context())
	if err != nil || !got.Clean {
		t.Errorf("a new host is not clean: %v: %v", got.Leftovers, err)
	}
}

func TestStopPreventsRestartOfNode(t *testing.T) {
	b, l := node(t)
	loaded(b, "kubelet.service")
	loaded(b, "k3s.service")
	for _, line := range []string{"systemctl stop kubelet.service", "systemctl stop k3s.service", "systemctl disable k3s.service"} {
		b.answers[line] = ""
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/config.yaml"} {
		if b.exists(gone) {
			t.Errorf("%s still exists", gone)
		}
	}
	if !b.exists("/var/lib/etcd/member") {
		t.Error("data was removed while containers may still run")
	}
	if slices.Contains(b.ran, "systemctl disable kubelet.service") {
		t.Error("the kubelet's unit was disabled")
	}
}

// A kubelet may hang because its API server no longer exists. Only the reboot
// ends it.
func TestStopContinuesWhenProcessHangs(t *testing.T) {
	b, l := node(t)
	loaded(b, "kubelet.service")
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(b.ran, "systemctl kill --signal=KILL kubelet.service") {
		t.Errorf("ran %q", b.ran)
	}
	if b.exists("/var/lib/kubelet/config.yaml") {
		t.Error("the node would start again")
	}
	// Containers are killed, because they may ignore SIGTERM.
	if diff := cmp.Diff([]int{20, 21}, b.killed); diff != "" {
		t.Errorf("killed, -want +got:\n%s", diff)
	}
}

func TestStopFailsIfUnitStaysEnabled(t *testing.T) {
	b, l := node(t)
	loaded(b, "k3s.service")
	b.answers["systemctl stop k3s.service"] = ""
	if err := l.Stop(t.Context()); err == nil {
		t.Error("no error although k3s is still enabled")
	}
}

func TestPreexistingPaths(t *testing.T) {
	_, l := newBox(t, map[string]string{"/etc/cni/net.d/10-lab.conflist": "x", "/opt/cni/bin/bridge": "x", "/var/lib/kubelet/x": "", "/srv/x": ""})
	got, err := l.PreexistingPaths()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/etc/cni/net.d/10-lab.conflist", "/opt/cni/bin/bridge", "/var/lib/kubelet", "/etc/cni/net.d", "/etc/cni", "/opt/cni/bin", "/opt/cni",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestClean(t *testing.T) {
	b, l := node(t)
	loaded(b, "kubelet.service")
	b.answers["systemctl stop kubelet.service"] = ""
	if err := l.Clean(t.Context(), []string{"/etc/cni/net.d/10-lab.conflist", "/var/lib/kubelet"}); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{
		"/etc/kubernetes/patches/mine.yaml": true, "/etc/kubernetes/pki": false, "/etc/kubernetes/admin.conf": false,
		"/var/lib/kubelet": true, "/var/lib/kubelet/pods": false, "/var/lib/etcd": false, "/var/lib/cni": false, "/tmp/kubeadm.yml": false,
		"/var/lib/rancher/k3s/agent/images/a.tar": true, "/var/lib/rancher/k3s/agent/kubelet.kubeconfig": false,
		"/etc/cni/net.d/10-lab.conflist": true, "/etc/cni/net.d/05-calico.conflist": false,
	} {
		if b.exists(name) != stays {
			t.Errorf("%s exists: %t", name, b.exists(name))
		}
	}
	if diff := cmp.Diff([]string{"/var/lib/kubelet/pods/p/volumes/v/w", "/var/lib/kubelet/pods/p/volumes/v"}, b.unmounted); diff != "" {
		t.Errorf("unmounted, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{20, 21}, b.killed); diff != "" {
		t.Errorf("killed, -want +got:\n%s", diff)
	}
	for _, line := range []string{
		"/usr/local/bin/kubeadm reset --force --skip-phases=remove-etcd-member", "ip link delete cni0", "nft delete table ip kube-proxy",
	} {
		if !slices.Contains(b.ran, line) {
			t.Errorf("did not run %q", line)
		}
	}
	if !slices.Contains(b.ran, "iptables --table nat --delete-chain KUBE-SERVICES") {
		t.Error("did not delete a chain that iptables-restore does not delete")
	}
	restored := b.stdin["iptables-restore"]
	if strings.Contains(restored, "KUBE-") || strings.Contains(restored, "CNI-") || !strings.Contains(restored, "-j MINE") {
		t.Errorf("restored %q", restored)
	}
	if slices.Contains(b.ran, "nft delete table inet mine") || slices.Contains(b.ran, "ip link delete docker0") {
		t.Error("removed a table or an interface that does not belong to the node")
	}
}

// A volume that cannot be unmounted may be data on a file server.
func TestCleanDoesNotDeleteMountedFiles(t *testing.T) {
	b, l := node(t)
	loaded(b, "kubelet.service")
	b.answers["systemctl stop kubelet.service"] = ""
	b.stuck = "/var/lib/kubelet/pods/p/volumes/v"
	err := l.Clean(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), b.stuck) {
		t.Errorf("Clean returned %v", err)
	}
	if !b.exists("/var/lib/kubelet/pods/p/volumes/v") {
		t.Error("mounted files were deleted")
	}
	if b.exists("/var/lib/etcd/member") {
		t.Error("the other leftovers were not removed")
	}
	found, err := l.Cleanliness(t.Context())
	if err != nil || found.Clean {
		t.Errorf("the host counts as clean: %+v, %v", found, err)
	}
}

// The kubelet's directory may be a symbolic link to another disk.
func TestCleanDoesNotDeleteMountedFilesBehindLink(t *testing.T) {
	b, l := newBox(t, map[string]string{
		"/data/kubelet/pods/p/volumes/v/file": "x",
		"/proc/self/mountinfo":                "1 0 0:1 / / rw\n2 1 0:2 / /data/kubelet/pods/p/volumes/v rw\n",
	})
	b.link("/var/lib/kubelet", "/data/kubelet")
	if err := l.Clean(t.Context(), nil); err == nil {
		t.Error("Clean succeeded")
	}
	if !b.exists("/data/kubelet/pods/p/volumes/v/file") {
		t.Error("mounted files were deleted")
	}
}

// If the mounts are unknown, Clean deletes nothing and no host counts as clean.
func TestUnreadableMounts(t *testing.T) {
	b, l := newBox(t, map[string]string{"/var/lib/kubelet/pods/p/volumes/v/file": "x"})
	if err := removeAll(b, "/proc/self/mountinfo"); err != nil {
		t.Fatal(err)
	}
	if err := l.Clean(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "/var/lib/kubelet/pods was kept: looking up what is mounted") {
		t.Errorf("got %v", err)
	}
	if !b.exists("/var/lib/kubelet/pods/p/volumes/v/file") {
		t.Error("files that may be mounted were deleted")
	}
	if got, err := l.Cleanliness(t.Context()); err == nil {
		t.Errorf("no error: %+v", got)
	}
}

func TestCleanDeletesChainsWithoutRules(t *testing.T) {
	b, l := newBox(t, nil)
	b.answers["ip6tables-save"] = "*mangle\n:INPUT ACCEPT [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
	if err := l.Clean(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(b.ran, "ip6tables --table mangle --delete-chain KUBE-KUBELET-CANARY") {
		t.Errorf("ran %q", b.ran)
	}
}

func TestCleanKeepsCNIConfigurationIfPreexistingPathsAreUnknown(t *testing.T) {
	b, l := node(t)
	if err := l.Clean(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if !b.exists("/etc/cni/net.d/05-calico.conflist") {
		t.Error("removed a configuration that may be older than the node")
	}
}

func TestReboot(t *testing.T) {
	b, l := newBox(t, nil)
	if err := l.Reboot(t.Context()); !errors.Is(err, errors.ErrUnsupported) || b.waited != 0 {
		t.Errorf("systemctl is missing: waited %s: %v", b.waited, err)
	}
	b.answers["systemctl is-enabled elemental-agent.service"] = "disabled\n"
	if err := l.Reboot(t.Context()); err == nil || !strings.Contains(err.Error(), "enable it") {
		t.Errorf("the agent is disabled and would not start after the reboot: %v", err)
	}
	b.answers["systemctl is-enabled elemental-agent.service"] = "enabled\n"
	b.answers["systemctl --no-wall reboot"] = ""
	b.answers["systemctl --no-wall --force reboot"] = ""
	b.answers["systemctl --no-wall --force --force reboot"] = ""
	if err := l.Reboot(t.Context()); err == nil || !slices.Contains(b.ran, "systemctl --no-wall --force --force reboot") {
		t.Errorf("the host does not reboot: %v, ran %q", err, b.ran)
	}
	delete(b.answers, "systemctl --no-wall reboot")
	b.ran = nil
	if err := l.Reboot(t.Context()); !errors.Is(err, errors.ErrUnsupported) || !slices.Contains(b.ran, "systemctl --no-wall --force reboot") {
		t.Errorf("systemd does not answer: %v, ran %q", err, b.ran)
	}
	b.goesDown = true
	if err := l.Reboot(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("the host reboots: %v", err)
	}
}

// loaded makes a unit known to systemd.
func loaded(b *box, unit string) {
	b.answers["systemctl show --property LoadState --value "+unit] = "loaded\n"
}
