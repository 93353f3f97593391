package preflight

import (
	"bufio"
	"math/bits"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Read returns the facts of the host whose files are below root, usually "/". socket is the
// path of the container runtime's socket; blank if the host has no runtime. Facts that can't
// be read are blank.
func Read(root, socket string) protocol.Preflight {
	h := host(root)
	return protocol.Preflight{
		Swap:            h.swap(),
		BridgeNetfilter: h.bridgeNetfilter(),
		IPForwarding:    h.setting("/proc/sys/net/ipv4/ip_forward"),
		CgroupVersion:   h.cgroupVersion(),
		TakenPorts:      h.takenPorts(),
		RuntimeSocket:   h.runtimeSocket(socket),
		NameServers:     h.nameServers(),
		FreeBytes:       h.freeBytes("/var/lib"),
	}
}

// host is the folder of the host's files.
type host string

func (h host) path(name string) string { return filepath.Join(string(h), name) }

func (h host) exists(name string) bool {
	_, err := os.Stat(h.path(name))
	return err == nil
}

// eachLine calls visit with the fields of each line, until it returns false. It reports whether
// the file could be read to that point.
func (h host) eachLine(name string, visit func(fields []string) (goOn bool)) bool {
	file, err := os.Open(h.path(name))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if !visit(strings.Fields(lines.Text())) {
			return true
		}
	}
	return lines.Err() == nil
}

// swap returns whether /proc/swaps lists anything below its heading. A kernel without swap
// does not have the file.
func (h host) swap() protocol.FeatureState {
	if !h.exists("/proc/swaps") {
		if h.exists("/proc/meminfo") {
			return protocol.FeatureDisabled
		}
		return ""
	}
	entries := 0
	if !h.eachLine("/proc/swaps", func(fields []string) bool {
		if len(fields) > 0 && fields[0] != "Filename" {
			entries++
		}
		return true
	}) {
		return ""
	}
	if entries > 0 {
		return protocol.FeatureEnabled
	}
	return protocol.FeatureDisabled
}

// setting returns the state of a kernel setting of one number; blank if the kernel does not
// have it.
func (h host) setting(name string) protocol.FeatureState {
	data, err := os.ReadFile(h.path(name))
	switch {
	case err != nil:
		return ""
	case strings.TrimSpace(string(data)) == "0":
		return protocol.FeatureDisabled
	default:
		return protocol.FeatureEnabled
	}
}

// bridgeNetfilter relies on the setting that the module has once it is loaded. A module that
// is built into the kernel does not always have a folder in /sys/module.
func (h host) bridgeNetfilter() protocol.FeatureState {
	if state := h.setting("/proc/sys/net/bridge/bridge-nf-call-iptables"); state != "" {
		return state
	}
	if !h.exists("/proc/sys/net") {
		return ""
	}
	if has, known := h.hasModule("br_netfilter"); known && !has {
		return protocol.FeatureMissing
	}
	return protocol.FeatureDisabled
}

// hasModule returns whether the kernel that runs has a module. It is unknown if the host does
// not have the lists of that kernel's modules.
func (h host) hasModule(module string) (has, known bool) {
	release, err := os.ReadFile(h.path("/proc/sys/kernel/osrelease"))
	if err != nil {
		return false, false
	}
	version := strings.TrimSpace(string(release))
	for _, folder := range []string{"/lib/modules/", "/usr/lib/modules/"} {
		for _, list := range []string{"modules.dep", "modules.builtin"} {
			found := false
			isRead := h.eachLine(folder+version+"/"+list, func(fields []string) bool {
				if len(fields) > 0 {
					name, _, _ := strings.Cut(filepath.Base(strings.TrimSuffix(fields[0], ":")), ".")
					found = strings.ReplaceAll(name, "-", "_") == module
				}
				return !found
			})
			known = known || isRead
			if found {
				return true, true
			}
		}
	}
	return false, known
}

func (h host) cgroupVersion() int32 {
	switch {
	case h.exists("/sys/fs/cgroup/cgroup.controllers"):
		return 2
	case h.exists("/sys/fs/cgroup/cpu") || h.exists("/sys/fs/cgroup/memory"):
		return 1
	default:
		return 0
	}
}

// nameServers returns whether the resolver has a name server.
func (h host) nameServers() protocol.FeatureState {
	found := false
	isRead := h.eachLine("/etc/resolv.conf", func(fields []string) bool {
		found = len(fields) > 1 && fields[0] == "nameserver"
		return !found
	})
	switch {
	case found:
		return protocol.FeatureEnabled
	case isRead || !h.exists("/etc/resolv.conf") && h.exists("/etc"):
		return protocol.FeatureMissing
	default:
		return ""
	}
}

// freeBytes returns the free space of the file system of a folder, rounded down to a power of
// two, at least 1; 0 if it is unknown.
func (h host) freeBytes(folder string) int64 {
	var stat unix.Statfs_t
	if err := unix.Statfs(h.path(folder), &stat); err != nil || stat.Bsize <= 0 {
		return 0
	}
	return max(roundDown(stat.Bavail*uint64(stat.Bsize)), 1)
}

// roundDown returns the largest power of two that is not larger than n; 0 for 0.
func roundDown(n uint64) int64 {
	if n == 0 {
		return 0
	}
	return 1 << min(bits.Len64(n)-1, 62)
}
