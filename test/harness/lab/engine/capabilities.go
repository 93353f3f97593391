package engine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// missingCapabilities returns the capabilities that are not in the bounding set of a process, by the content of its
// /proc/PID/status.
func missingCapabilities(procStatus string) ([]string, error) {
	names := strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
		LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
		SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
		AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ`)
	for line := range strings.Lines(procStatus) {
		value, found := strings.CutPrefix(line, "CapBnd:")
		if !found {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the capability bounding set: %w", err)
		}
		var missing []string
		for i, name := range names {
			if bits&(1<<i) == 0 {
				missing = append(missing, name)
			}
		}
		return missing, nil
	}
	return nil, fmt.Errorf("reading the capability bounding set: no CapBnd line")
}

// MissingCapabilities returns the capabilities that this machine does not grant to any process, by Docker's names. A
// container that requests one of them does not start, so --privileged cannot be used if there are any.
func MissingCapabilities() ([]string, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("reading the capability bounding set: %w", err)
	}
	return missingCapabilities(string(status))
}

// Privileges returns the flags of docker run that grant a host all available capabilities. Unlike
// --privileged, they do not expose the machine's devices.
func Privileges() ([]string, error) {
	missing, err := MissingCapabilities()
	if err != nil {
		return nil, err
	}
	flags := []string{
		"--cap-add", "ALL",
		"--security-opt", "seccomp=unconfined",
		"--security-opt", "apparmor=unconfined",
		"--security-opt", "systempaths=unconfined",
		"--device-cgroup-rule", "a *:* rwm",
		"--device", "/dev/kmsg",
		"--cgroupns", "private",
	}
	for _, name := range missing {
		flags = append(flags, "--cap-drop", name)
	}
	return flags, nil
}
