package linux_test

import (
	"maps"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform/linux"
)

// The inventory of the machine that runs the test agrees with what its kernel says in other
// ways. Files of a test could have a format that no kernel writes.
func TestInventoryOfThisMachine(t *testing.T) {
	// Interfaces may come and go during the test.
	hardware := hardwareAddresses(t)
	got, err := linux.New(linux.Options{}).Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(hardware, hardwareAddresses(t))
	var name unix.Utsname
	var info unix.Sysinfo_t
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if release := unix.ByteSliceToString(name.Release[:]); got.OS.KernelVersion != release {
		t.Errorf("the kernel is %q, want %q", got.OS.KernelVersion, release)
	}
	if total := int64(info.Totalram) * int64(info.Unit); got.MemoryBytes <= 0 || got.MemoryBytes > total {
		t.Errorf("%d bytes of memory, want %d or, in a container, less", got.MemoryBytes, total)
	}
	if int(got.CPU.Cores) < runtime.NumCPU() {
		t.Errorf("%d cores, want %d or more", got.CPU.Cores, runtime.NumCPU())
	}
	sizes := partitionSizes(t)
	for _, disk := range got.Disks {
		if size, known := sizes[disk.Name]; !known || size != disk.SizeBytes {
			t.Errorf("disk %s has %d bytes, want %d", disk.Name, disk.SizeBytes, size)
		}
	}
	for _, nic := range got.NICs {
		if address, known := hardware[nic.Name]; !known || address != nic.MAC {
			t.Errorf("interface %s has the address %q, want %q", nic.Name, nic.MAC, address)
		}
	}
	t.Logf("%d disks and %d interfaces", len(got.Disks), len(got.NICs))
}

// hardwareAddresses returns the hardware addresses of all interfaces except loopback.
func hardwareAddresses(t *testing.T) map[string]string {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 {
			out[i.Name] = i.HardwareAddr.String()
		}
	}
	return out
}

// partitionSizes returns the bytes of all block devices by /proc/partitions.
func partitionSizes(t *testing.T) map[string]int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/partitions")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 4 {
			if kib, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
				out[fields[3]] = kib << 10
			}
		}
	}
	return out
}
