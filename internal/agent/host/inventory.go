package host

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// sectorBytes is the unit of sizes in /sys/block, whatever the disk's is.
const sectorBytes = 512

// Inventory looks at the hardware and the operating system. What a host
// doesn't tell is left blank.
func (l *Linux) Inventory(context.Context) (protocol.Inventory, error) {
	disks, err := l.disks()
	if err != nil {
		return protocol.Inventory{}, fmt.Errorf("listing the disks: %w", err)
	}
	nics, err := l.nics()
	if err != nil {
		return protocol.Inventory{}, fmt.Errorf("listing the network interfaces: %w", err)
	}
	const dmi = "/sys/class/dmi/id/"
	return protocol.Inventory{
		MachineID:    l.text("/etc/machine-id"),
		Architecture: runtime.GOARCH,
		SMBIOS: protocol.SMBIOS{
			Manufacturer: l.text(dmi + "sys_vendor"), ProductName: l.text(dmi + "product_name"),
			SerialNumber: l.text(dmi + "product_serial"), UUID: l.text(dmi + "product_uuid"),
		},
		CPU:         l.cpu(),
		MemoryBytes: l.memory(),
		Disks:       disks,
		NICs:        nics,
		OS:          l.operatingSystem(),
	}, nil
}

func (l *Linux) cpu() protocol.CPU {
	var cpu protocol.CPU
	l.eachPair("/proc/cpuinfo", ":", func(key, value string) {
		switch key {
		case "processor":
			cpu.Cores++
		case "model name", "Model":
			cpu.Model = value
		}
	})
	return cpu
}

func (l *Linux) memory() int64 {
	var bytes int64
	l.eachPair("/proc/meminfo", ":", func(key, value string) {
		if key == "MemTotal" {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
			bytes = kib << 10
		}
	})
	return bytes
}

func (l *Linux) operatingSystem() protocol.OS {
	system := protocol.OS{KernelVersion: l.text("/proc/sys/kernel/osrelease")}
	path := "/etc/os-release"
	if !l.exists(path) {
		path = "/usr/lib/os-release"
	}
	l.eachPair(path, "=", func(key, value string) {
		value = unquote(value)
		switch key {
		case "ID":
			system.ID = value
		case "VERSION_ID":
			system.VersionID = value
		case "PRETTY_NAME":
			system.PrettyName = value
		}
	})
	return system
}

// disks lists whole disks that have a device behind them, which leaves out
// loop devices, RAM disks and device mapper.
func (l *Linux) disks() ([]protocol.Disk, error) {
	entries, err := os.ReadDir(l.path("/sys/block"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var disks []protocol.Disk
	for _, entry := range entries {
		base := "/sys/block/" + entry.Name() + "/"
		sectors, _ := strconv.ParseInt(l.text(base+"size"), 10, 64)
		if sectors == 0 || !l.exists(base+"device") || strings.HasPrefix(entry.Name(), "sr") {
			continue
		}
		disks = append(disks, protocol.Disk{
			Name: entry.Name(), SizeBytes: sectors * sectorBytes, Rotational: l.text(base+"queue/rotational") == "1",
			Model: l.text(base + "device/model"), Serial: l.text(base + "device/serial"),
		})
	}
	return disks, nil
}

// eachPair calls f with the trimmed halves of every line that has a separator.
func (l *Linux) eachPair(name, separator string, f func(key, value string)) {
	file, err := os.Open(l.path(name))
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), separator); ok {
			f(strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
}

// unquote takes the shell quotes off a value in os-release(5).
func unquote(value string) string {
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		return value[1 : len(value)-1]
	}
	return value
}
