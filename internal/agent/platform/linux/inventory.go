package linux

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/osrelease"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/preflight"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/software"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// sectorBytes is the unit of sizes in /sys/block, for disks of any sector size.
const sectorBytes = 512

// searchPath is the PATH of the agent's scripts if the agent has none.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inventory reads the hardware and the software.
type inventory struct {
	root     root
	network  network
	software *software.Finder
}

func newInventory(o Options, nics network) inventory {
	path := os.Getenv("PATH")
	if path == "" {
		path = searchPath
	}
	return inventory{
		root: root(o.Root), network: nics,
		software: software.New(software.Options{Root: o.Root, Path: path, Commands: o.Commands, Clock: o.Clock, IsBundled: o.Installation.Has}),
	}
}

// Origin says who has installed a file. It is blank if that is unknown.
func (i inventory) Origin(ctx context.Context, path string) protocol.Origin {
	return i.software.Origin(ctx, path)
}

// Kubernetes returns the programs of Kubernetes. Unknown facts are blank.
func (i inventory) Kubernetes(ctx context.Context) (protocol.Kubernetes, error) {
	return i.software.Find(ctx)
}

// Preflight returns what kubeadm and the kubelet need of the operating system. Unknown facts
// are blank.
func (i inventory) Preflight(ctx context.Context) (protocol.Preflight, error) {
	found, err := i.software.Find(ctx)
	if err != nil {
		return protocol.Preflight{}, err
	}
	facts := preflight.Read(string(i.root), found.ContainerRuntime.Socket)
	if facts.CgroupVersion == 1 && found.Kubelet.Path != "" {
		facts.KubeletCgroupV1 = protocol.FeatureDisabled
		if i.software.AllowsCgroupV1() {
			facts.KubeletCgroupV1 = protocol.FeatureEnabled
		}
	}
	return facts, nil
}

// Inventory returns the hardware and the operating system. Unknown facts are
// blank.
func (i inventory) Inventory(context.Context) (protocol.Inventory, error) {
	disks, err := i.disks()
	if err != nil {
		return protocol.Inventory{}, fmt.Errorf("listing the disks: %w", err)
	}
	nics, err := i.network.nics()
	if err != nil {
		return protocol.Inventory{}, fmt.Errorf("listing the network interfaces: %w", err)
	}
	const dmi = "/sys/class/dmi/id/"
	return protocol.Inventory{
		MachineID:    i.root.text("/etc/machine-id"),
		Architecture: runtime.GOARCH,
		SMBIOS: protocol.SMBIOS{
			Manufacturer: i.root.text(dmi + "sys_vendor"), ProductName: i.root.text(dmi + "product_name"),
			SerialNumber: i.root.text(dmi + "product_serial"), UUID: i.root.text(dmi + "product_uuid"),
		},
		CPU:         i.cpu(),
		MemoryBytes: i.memory(),
		Disks:       disks,
		NICs:        nics,
		OS:          i.operatingSystem(),
	}, nil
}

func (i inventory) cpu() protocol.CPU {
	var cpu protocol.CPU
	i.root.eachPair("/proc/cpuinfo", ":", func(key, value string) {
		switch key {
		case "processor":
			cpu.Cores++
		case "model name", "Model":
			cpu.Model = value
		}
	})
	return cpu
}

func (i inventory) memory() int64 {
	var bytes int64
	i.root.eachPair("/proc/meminfo", ":", func(key, value string) {
		if key == "MemTotal" {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
			bytes = kib << 10
		}
	})
	return bytes
}

func (i inventory) operatingSystem() protocol.OS {
	release, err := osrelease.Read(string(i.root))
	if err != nil {
		release = nil // unknown facts are blank
	}
	return protocol.OS{
		ID: release["ID"], VersionID: release["VERSION_ID"], PrettyName: release["PRETTY_NAME"],
		KernelVersion: i.root.text("/proc/sys/kernel/osrelease"),
	}
}

// disks lists whole disks that are backed by a device. Loop devices, RAM disks
// and device mapper have none.
func (i inventory) disks() ([]protocol.Disk, error) {
	entries, err := os.ReadDir(i.root.path("/sys/block"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var disks []protocol.Disk
	for _, entry := range entries {
		base := "/sys/block/" + entry.Name() + "/"
		sectors, _ := strconv.ParseInt(i.root.text(base+"size"), 10, 64)
		if sectors == 0 || !i.root.exists(base+"device") || strings.HasPrefix(entry.Name(), "sr") {
			continue
		}
		disks = append(disks, protocol.Disk{
			Name: entry.Name(), SizeBytes: sectors * sectorBytes, Rotational: i.root.text(base+"queue/rotational") == "1",
			Model: i.root.text(base + "device/model"), Serial: i.root.text(base + "device/serial"),
		})
	}
	return disks, nil
}
