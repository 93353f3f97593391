package preflight_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const socket = "/run/containerd/containerd.sock"

// files are those of a host on which kubeadm works, as a kernel writes them.
func files() map[string]string {
	return map[string]string{
		"/proc/swaps":                                  "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
		"/proc/meminfo":                                "MemTotal: 1 kB\n",
		"/proc/sys/kernel/osrelease":                   "6.12.0-1\n",
		"/proc/sys/net/ipv4/ip_forward":                "1\n",
		"/proc/sys/net/bridge/bridge-nf-call-iptables": "1\n",
		"/sys/fs/cgroup/cgroup.controllers":            "cpu memory\n",
		"/etc/resolv.conf":                             "# comment\nsearch example.org\nnameserver 192.0.2.53\n",
		"/var/lib/x":                                   "",
		"/proc/net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
			"   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n" +
			"   1: 0200000A:192B 0300000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1\n",
		"/proc/net/tcp6": "  sl  local_address                         remote_address                        st\n",
		"/proc/net/unix": "Num       RefCount Protocol Flags    Type St Inode Path\n" +
			"0000000000000000: 00000003 00000000 00000000 0001 03 10 /run/containerd/containerd.sock\n" +
			"0000000000000000: 00000002 00000000 00010000 0001 01 11 /run/containerd/containerd.sock\n",
	}
}

func good() protocol.Preflight {
	const yes, no = protocol.FeatureEnabled, protocol.FeatureDisabled
	return protocol.Preflight{Swap: no, BridgeNetfilter: yes, IPForwarding: yes, CgroupVersion: 2, RuntimeSocket: yes, NameServers: yes}
}

// read reads a host with the files, without the free space, which is that of this machine.
func read(t *testing.T, files map[string]string) protocol.Preflight {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := preflight.Read(root, socket)
	got.FreeBytes = 0
	return got
}

func TestRead(t *testing.T) {
	const listens = " 00000000:0000 0A 0 0 0 0 0 1\n"
	const bridge = "/proc/sys/net/bridge/bridge-nf-call-iptables"
	const modules = "/lib/modules/6.12.0-1/"
	for name, tc := range map[string]struct {
		change func(files map[string]string)
		want   func(*protocol.Preflight)
	}{
		"as it should be": {func(map[string]string) {}, func(*protocol.Preflight) {}},
		"swap": {func(f map[string]string) { f["/proc/swaps"] += "/dev/sda2 partition 1048572 0 -2\n" },
			func(p *protocol.Preflight) { p.Swap = protocol.FeatureEnabled }},
		"a kernel without swap": {func(f map[string]string) { delete(f, "/proc/swaps") }, func(*protocol.Preflight) {}},
		"bridges pass the packet filter": {func(f map[string]string) { f[bridge] = "0\n" },
			func(p *protocol.Preflight) { p.BridgeNetfilter = protocol.FeatureDisabled }},
		"the module is not loaded": {func(f map[string]string) {
			delete(f, bridge)
			f[modules+"modules.dep"] = "kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\n"
		}, func(p *protocol.Preflight) { p.BridgeNetfilter = protocol.FeatureDisabled }},
		"the module is built in, and off": {func(f map[string]string) {
			delete(f, bridge)
			f[modules+"modules.dep"], f[modules+"modules.builtin"] = "", "kernel/net/bridge/br_netfilter.ko\n"
		}, func(p *protocol.Preflight) { p.BridgeNetfilter = protocol.FeatureDisabled }},
		"a kernel without the module": {func(f map[string]string) {
			delete(f, bridge)
			f[modules+"modules.dep"] = "kernel/net/bridge/bridge.ko.xz: kernel/net/802/stp.ko.xz\n"
		}, func(p *protocol.Preflight) { p.BridgeNetfilter = protocol.FeatureMissing }},
		"modules of another kernel": {func(f map[string]string) {
			delete(f, bridge)
			f["/lib/modules/5.0/modules.dep"] = "kernel/net/bridge/bridge.ko.xz:\n"
		}, func(p *protocol.Preflight) { p.BridgeNetfilter = protocol.FeatureDisabled }},
		"no forwarding": {func(f map[string]string) { f["/proc/sys/net/ipv4/ip_forward"] = "0\n" },
			func(p *protocol.Preflight) { p.IPForwarding = protocol.FeatureDisabled }},
		"cgroup v1": {func(f map[string]string) {
			delete(f, "/sys/fs/cgroup/cgroup.controllers")
			f["/sys/fs/cgroup/memory/tasks"] = ""
		}, func(p *protocol.Preflight) { p.CgroupVersion = 1 }},
		"taken ports": {func(f map[string]string) {
			f["/proc/net/tcp"] += "   2: 00000000:280A" + listens + "   3: 0100007F:094B" + listens
			f["/proc/net/tcp6"] += "   0: 00000000000000000000000000000000:192B" + listens + "   1: 00000000000000000000000000000000:280A" + listens
		}, func(p *protocol.Preflight) { p.TakenPorts = []int32{2379, 6443, 10250} }},
		"a runtime that does not listen": {func(f map[string]string) {
			f["/proc/net/unix"] = strings.Join(strings.SplitAfter(f["/proc/net/unix"], "\n")[:2], "")
		}, func(p *protocol.Preflight) { p.RuntimeSocket = protocol.FeatureDisabled }},
		"a socket by another name": {func(f map[string]string) {
			f["/proc/net/unix"] = strings.ReplaceAll(f["/proc/net/unix"], " /run", " /var/run")
		}, func(*protocol.Preflight) {}},
		"no name server": {func(f map[string]string) { f["/etc/resolv.conf"] = "#nameserver 192.0.2.53\nnameserver\n" },
			func(p *protocol.Preflight) { p.NameServers = protocol.FeatureMissing }},
		"no resolver": {func(f map[string]string) {
			delete(f, "/etc/resolv.conf")
			f["/etc/hosts"] = ""
		}, func(p *protocol.Preflight) { p.NameServers = protocol.FeatureMissing }},
		"no facts": {func(f map[string]string) { clear(f) }, func(p *protocol.Preflight) { *p = protocol.Preflight{} }},
	} {
		t.Run(name, func(t *testing.T) {
			of, want := files(), good()
			tc.change(of)
			tc.want(&want)
			if got := read(t, of); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// A host without a container runtime has no socket to look for.
func TestNoRuntime(t *testing.T) {
	if got := preflight.Read("/", "").RuntimeSocket; got != "" {
		t.Errorf("got %q", got)
	}
}

// The kernel that runs the test writes the files in the format that is expected: it shows a
// socket of this process, and its facts are known.
func TestThisMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if got := preflight.Read("/", path).RuntimeSocket; got != protocol.FeatureDisabled {
		t.Errorf("a socket that does not exist is %s", got)
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	got := preflight.Read("/", path)
	if got.RuntimeSocket != protocol.FeatureEnabled {
		t.Errorf("the socket is %s", got.RuntimeSocket)
	}
	if got.Swap == "" || got.BridgeNetfilter == "" || got.IPForwarding == "" || got.CgroupVersion == 0 || got.FreeBytes == 0 {
		t.Errorf("facts are missing: %+v", got)
	}
	if got.FreeBytes&(got.FreeBytes-1) != 0 {
		t.Errorf("%d is no power of two", got.FreeBytes)
	}
	// One of the ports, if it is free here.
	for _, port := range []int32{2379, 2380, 6443, 10250, 10257, 10259} {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
		if err != nil {
			continue
		}
		taken := preflight.Read("/", path).TakenPorts
		if !slices.Contains(taken, port) {
			t.Errorf("port %d is not among %s", port, fmt.Sprint(taken))
		}
		_ = listener.Close()
		return
	}
}
