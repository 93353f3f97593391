package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the machine of a measurement.
type Machine struct {
	// CPU is the model of the processors, Cores their number.
	CPU   string
	Cores int
	// Memory is in bytes.
	Memory uint64
	// Kernel and Go are versions.
	Kernel, Go string
}

// ThisMachine describes the machine that this process runs on.
func ThisMachine() (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Go: strings.TrimPrefix(runtime.Version(), "go")}
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Machine{}, fmt.Errorf("reading the model of the processor: %w", err)
	}
	m.CPU = parseModel(string(processors))
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Machine{}, fmt.Errorf("reading the size of the memory: %w", err)
	}
	if m.Memory, err = field(memory, "MemTotal"); err != nil {
		return Machine{}, fmt.Errorf("reading the size of the memory: %w", err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Machine{}, fmt.Errorf("reading the kernel's version: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(name.Release[:])
	return m, nil
}

// parseModel returns the processor's name, which kernels for ARM don't report.
func parseModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
