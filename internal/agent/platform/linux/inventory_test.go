package linux_test

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// defaultViaEth0 is /proc/net/route of a host with one default route.
const defaultViaEth0 = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth1	00000000	01021FAC	0003	0	0	200	00000000	0	0	0
eth0	00000000	01001FAC	0003	0	0	100	00000000	0	0	0
cni0	0001F40A	00000000	0001	0	0	0	00FFFFFF	0	0	0
`

func TestInventory(t *testing.T) {
	b, l := newBox(t, map[string]string{
		"/etc/machine-id":                    "0123456789abcdef\n",
		"/sys/class/dmi/id/sys_vendor":       "Acme\n",
		"/sys/class/dmi/id/product_name":     "Edge 1\n",
		"/sys/class/dmi/id/product_serial":   "S-1\n",
		"/sys/class/dmi/id/product_uuid":     "u-1\n",
		"/proc/cpuinfo":                      "processor\t: 0\nmodel name\t: Fast\n\nprocessor\t: 1\nmodel name\t: Fast\n",
		"/proc/meminfo":                      "MemTotal:        2048 kB\nMemFree: 1 kB\n",
		"/proc/sys/kernel/osrelease":         "6.1.0\n",
		"/etc/os-release":                    "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME='Debian 12'\n",
		"/sys/block/sda/size":                "4096\n",
		"/sys/block/sda/device/model":        "Disk\n",
		"/sys/block/sda/queue/rotational":    "1\n",
		"/sys/block/loop0/size":              "8\n",
		"/sys/block/sr0/size":                "8\n",
		"/sys/block/sr0/device/model":        "CD\n",
		"/sys/block/nvme0n1/size":            "2\n",
		"/sys/block/nvme0n1/device/serial":   "N-1\n",
		"/sys/block/nvme0n1/device/model":    "NVMe\n",
		"/proc/net/route":                    defaultViaEth0,
		"/sys/class/net/eth0/speed":          "1000\n",
		"/sys/class/net/eth0/device/vendor":  "x",
		"/sys/class/net/wlan0/device/vendor": "x",
		"/sys/class/net/wlan0/speed":         "-1\n",
		"/sys/class/net/docker0/uevent":      "DEVTYPE=bridge\n",
	})
	b.interfaces = []platform.NetworkInterface{nic("wlan0"), nic("docker0", "172.17.0.1/16"), nic("eth0", "172.31.0.5/24")}
	got, err := l.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := protocol.Inventory{
		MachineID: "0123456789abcdef", Architecture: got.Architecture,
		SMBIOS:      protocol.SMBIOS{Manufacturer: "Acme", ProductName: "Edge 1", SerialNumber: "S-1", UUID: "u-1"},
		CPU:         protocol.CPU{Model: "Fast", Cores: 2},
		MemoryBytes: 2 << 20,
		Disks: []protocol.Disk{
			{Name: "nvme0n1", SizeBytes: 1024, Model: "NVMe", Serial: "N-1"},
			{Name: "sda", SizeBytes: 2 << 20, Rotational: true, Model: "Disk"},
		},
		NICs: []protocol.NIC{
			{Name: "eth0", MAC: "02:00:00:00:00:01", SpeedMbps: 1000, DefaultRoute: true, Addresses: []string{"172.31.0.5/24"}},
			{Name: "wlan0", MAC: "02:00:00:00:00:01"},
		},
		OS: protocol.OS{ID: "debian", VersionID: "12", PrettyName: "Debian 12", KernelVersion: "6.1.0"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInventoryWithUnknownFacts(t *testing.T) {
	_, l := newBox(t, nil)
	if _, err := l.Inventory(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestKubernetes(t *testing.T) {
	b, l := newBox(t, nil)
	if found, err := l.Kubernetes(t.Context()); err != nil || found != (protocol.Kubernetes{}) {
		t.Errorf("found %+v, %v on a bare host", found, err)
	}
	// No child that is started meanwhile inherits the open file.
	syscall.ForkLock.RLock()
	b.write("/usr/bin/kubelet", "#!/bin/sh\n[ \"$*\" = --version ] && [ -z \"$HOME\" ] && echo Kubernetes v1.36.3\n")
	syscall.ForkLock.RUnlock()
	b.write("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
	b.write("/var/lib/dpkg/status", "")
	b.answers["env LC_ALL=C dpkg-query --search /usr/bin/kubelet"] = "kubelet: /usr/bin/kubelet\n"
	want := protocol.Kubernetes{Kubelet: protocol.Program{Path: "/usr/bin/kubelet", Version: "v1.36.3", Origin: protocol.OriginPackage}}
	if found, err := l.Kubernetes(t.Context()); err != nil || found != want {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestAddresses(t *testing.T) {
	ip := func(list ...string) []protocol.Address {
		var addresses []protocol.Address
		for _, text := range list {
			addresses = append(addresses, protocol.Address{Type: protocol.AddressInternalIP, Address: text})
		}
		return append(addresses, protocol.Address{Type: protocol.AddressHostname, Address: "edge-1"})
	}
	down := nic("eth5", "10.5.0.1/24")
	down.Up = false
	for name, test := range map[string]struct {
		files      map[string]string
		interfaces []platform.NetworkInterface
		want       []protocol.Address
	}{
		"the default route's interface comes first": {
			interfaces: []platform.NetworkInterface{nic("eth1", "10.1.0.1/24"), nic("eth0", "172.31.0.5/24")},
			want:       ip("172.31.0.5", "10.1.0.1"),
		},
		"addresses of Pods are omitted": {
			interfaces: []platform.NetworkInterface{
				nic("eth0", "172.31.0.5/24"), nic("cni0", "10.244.0.1/24"), nic("flannel.1", "10.244.0.0/32"), nic("kube-ipvs0", "10.96.0.1/32"),
				nic("veth1234", "169.254.1.1/32"), nic("cali12", "10.1.1.1/32"), nic("docker0", "172.17.0.1/16"), nic("tailscale0", "100.64.0.1/32"), down,
			},
			want: ip("172.31.0.5"),
		},
		"a virtual address is omitted": {
			interfaces: []platform.NetworkInterface{nic("eth0", "172.31.0.100/32", "172.31.0.5/24")},
			want:       ip("172.31.0.5"),
		},
		"a /32 address that is the only one": {
			interfaces: []platform.NetworkInterface{nic("eth0", "203.0.113.7/32")},
			want:       ip("203.0.113.7"),
		},
		"permanent global IPv6 addresses": {
			files: map[string]string{"/proc/net/if_inet6": "20010db8000000000000000000000002 02 40 00 01     eth0\n" +
				"20010db8000000000000000000000003 02 40 00 80     eth0\n"},
			interfaces: []platform.NetworkInterface{nic("eth0", "172.31.0.5/24", "fe80::1/64", "2001:db8::2/64", "2001:db8::3/64")},
			want:       ip("172.31.0.5", "2001:db8::3"),
		},
		"a bridge with the default route": {
			files: map[string]string{
				"/proc/net/route":           "br0\t00000000\t01001FAC\t0003\t0\t0\t0\t00000000\n",
				"/sys/class/net/br0/uevent": "DEVTYPE=bridge\n", "/sys/class/net/bond0/uevent": "DEVTYPE=bond\n",
			},
			interfaces: []platform.NetworkInterface{nic("bond0", "10.9.0.1/24"), nic("br0", "172.31.0.5/24")},
			want:       ip("172.31.0.5", "10.9.0.1"),
		},
		"IPv6 only": {
			files: map[string]string{
				"/proc/net/route": "Iface\n",
				"/proc/net/ipv6_route": "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n" +
					"00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003 eth1\n",
			},
			interfaces: []platform.NetworkInterface{nic("eth0", "2001:db8:1::1/64"), nic("eth1", "2001:db8:2::1/64")},
			want:       ip("2001:db8:2::1", "2001:db8:1::1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, l := newBox(t, map[string]string{"/proc/net/route": defaultViaEth0, "/proc/sys/kernel/hostname": "edge-1\n"})
			for file, content := range test.files {
				b.write(file, content)
			}
			b.interfaces = test.interfaces
			got, err := l.Addresses(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSetHostname(t *testing.T) {
	b, l := newBox(t, map[string]string{
		"/proc/sys/kernel/hostname": "old\n", "/etc/hostname": "old\n", "/etc/hosts": "127.0.0.1 localhost\n127.0.1.1 old # me\n10.0.0.9 other",
	})
	for range 2 {
		if err := l.SetHostname(t.Context(), "edge-1"); err != nil {
			t.Fatal(err)
		}
	}
	if b.name != "edge-1" || b.read("/etc/hostname") != "edge-1\n" {
		t.Errorf("the host name is %q, and %q after a boot", b.name, b.read("/etc/hostname"))
	}
	if got := b.read("/etc/hosts"); got != "127.0.0.1 localhost\n10.0.0.9 other\n127.0.1.1 edge-1\n" {
		t.Errorf("/etc/hosts is %q", got)
	}
	b.write("/etc/hosts", "10.0.0.5 edge-1\n")
	if err := l.SetHostname(t.Context(), "edge-1"); err != nil || b.read("/etc/hosts") != "10.0.0.5 edge-1\n" {
		t.Errorf("/etc/hosts changed although it had the name: %q: %v", b.read("/etc/hosts"), err)
	}
	for _, bad := range []string{"", "Edge", "a b", "-a", "a..b", "a/b", "x\n127.0.0.1 y"} {
		if err := l.SetHostname(t.Context(), bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestBootIDChangesAtBoot(t *testing.T) {
	_, l := newBox(t, nil)
	first, err := l.BootID()
	if err != nil || first == "" {
		t.Fatal(err)
	}
	if again, _ := l.BootID(); again != first {
		t.Error("the boot ID changed without a boot")
	}
	_, after := newBox(t, nil)
	if next, _ := after.BootID(); next == first {
		t.Error("the boot ID did not change at a boot")
	}
}
