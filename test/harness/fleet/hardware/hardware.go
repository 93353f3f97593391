package hardware

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// nicName is the name of a host's only network interface.
const nicName = "eth0"

// model is a hardware model.
type model struct {
	maker, product, cpu string
	cores               int32
	memory, disk        int64 // GiB
}

func models() []model {
	return []model{
		{"Kontron", "KBox A-150", "Intel Atom x6425E", 4, 8, 128},
		{"Intel", "NUC13ANHi5", "13th Gen Intel Core i5-1340P", 16, 32, 512},
		{"Supermicro", "SYS-E302-12D", "Intel Xeon D-1718T", 8, 64, 960},
		{"Dell Inc.", "PowerEdge XR5610", "Intel Xeon Gold 5412U", 48, 256, 1920},
	}
}

// Inventory returns invented hardware, the same for the same seed and name. The serial
// number is the name, so that ElementalHosts can be named after it.
func Inventory(seed uint64, name string, address netip.Addr) protocol.Inventory {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	random := rand.New(rand.NewPCG(seed, hash.Sum64()))
	all := models()
	kind := all[random.IntN(len(all))]
	id := [2]uint64{random.Uint64(), random.Uint64()}
	inventory := protocol.Inventory{
		MachineID:    fmt.Sprintf("%016x%016x", id[0], id[1]),
		Architecture: runtime.GOARCH,
		SMBIOS: protocol.SMBIOS{
			Manufacturer: kind.maker, ProductName: kind.product, SerialNumber: name,
			UUID: fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", id[0]>>32, id[0]>>16&0xffff, id[0]&0xfff, id[1]>>52, id[1]&0xffffffffffff),
		},
		CPU:         protocol.CPU{Model: kind.cpu, Cores: kind.cores},
		MemoryBytes: kind.memory << 30,
		Disks: []protocol.Disk{
			{Name: "nvme0n1", SizeBytes: kind.disk << 30, Model: "Virtual NVMe", Serial: fmt.Sprintf("%012X", random.Uint64N(1<<48))},
		},
		NICs: []protocol.NIC{{
			Name: nicName, MAC: mac(address).String(), SpeedMbps: 1000, DefaultRoute: true,
			Addresses: []string{netip.PrefixFrom(address, 8).String()},
		}},
		OS: protocol.OS{ID: "debian", VersionID: "12", PrettyName: "Debian GNU/Linux 12 (bookworm)", KernelVersion: "6.1.0-28-amd64"},
	}
	return inventory
}

// Kubernetes returns invented programs of a version of Kubernetes, as packages install them.
func Kubernetes(installed string) protocol.Kubernetes {
	program := func(path, version string) protocol.Program {
		return protocol.Program{Path: path, Version: version, Origin: protocol.OriginPackage}
	}
	return protocol.Kubernetes{
		Kubelet: program("/usr/bin/kubelet", installed),
		Kubeadm: program("/usr/bin/kubeadm", installed),
		Kubectl: program("/usr/bin/kubectl", installed),
		ContainerRuntime: protocol.ContainerRuntime{
			Name: protocol.RuntimeContainerd, Path: "/usr/bin/containerd", Version: "v2.1.4", Origin: protocol.OriginPackage,
			Socket: "/run/containerd/containerd.sock",
		},
		Runc:       program("/usr/sbin/runc", "1.3.0"),
		CNIPlugins: program("/opt/cni/bin", "v1.7.1"),
	}
}

// Prepared returns the facts of a host on which kubeadm works.
func Prepared() protocol.Preflight {
	return protocol.Preflight{
		Swap: protocol.FeatureDisabled, BridgeNetfilter: protocol.FeatureEnabled, IPForwarding: protocol.FeatureEnabled,
		CgroupVersion: 2, RuntimeSocket: protocol.FeatureEnabled, NameServers: protocol.FeatureEnabled, FreeBytes: 64 << 30,
	}
}

// mac returns a locally administered MAC address derived from the IP address.
func mac(address netip.Addr) net.HardwareAddr {
	ip := address.As4()
	return net.HardwareAddr{0x02, 0x00, ip[0], ip[1], ip[2], ip[3]}
}

// Interfaces returns the host's network interfaces.
func Interfaces(address netip.Addr) []platform.NetworkInterface {
	return []platform.NetworkInterface{{
		Name: nicName, MAC: mac(address).String(), Up: true,
		Addresses: []*net.IPNet{{IP: address.AsSlice(), Mask: net.CIDRMask(8, 32)}},
	}}
}
