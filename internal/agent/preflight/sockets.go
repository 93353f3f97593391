package preflight

import (
	"slices"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// ports returns the TCP ports that kubeadm finds free before it sets up a node: of etcd, the
// API server, the kubelet, the controller manager and the scheduler.
func ports() []int32 { return []int32{2379, 2380, 6443, 10250, 10257, 10259} }

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// takenPorts returns those of ports on which a process listens, at whichever address.
func (h host) takenPorts() []int32 {
	var taken []int32
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		h.eachLine(table, func(fields []string) bool {
			// sl, local_address, rem_address, st, …
			if len(fields) < 4 || fields[3] != listening {
				return true
			}
			_, port, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(port, 16, 16); err == nil && slices.Contains(ports(), int32(n)) {
				taken = append(taken, int32(n))
			}
			return true
		})
	}
	slices.Sort(taken)
	return slices.Compact(taken)
}

// acceptsConnections is the flag of a listening socket in /proc/net/unix.
const acceptsConnections = 1 << 16

// runtimeSocket returns whether a process listens on the socket; blank if there is no socket
// to listen on.
func (h host) runtimeSocket(socket string) protocol.FeatureState {
	if socket == "" {
		return ""
	}
	isServed := false
	isRead := h.eachLine("/proc/net/unix", func(fields []string) bool {
		// Num, RefCount, Protocol, Flags, Type, St, Inode, Path
		if len(fields) < 8 || inRun(fields[7]) != inRun(socket) {
			return true
		}
		flags, err := strconv.ParseUint(fields[3], 16, 32)
		isServed = err == nil && flags&acceptsConnections != 0
		return !isServed
	})
	switch {
	case isServed:
		return protocol.FeatureEnabled
	case isRead:
		return protocol.FeatureDisabled
	default:
		return ""
	}
}

// inRun returns the path without the link /var/run, which leads to /run.
func inRun(path string) string {
	if rest, found := strings.CutPrefix(path, "/var/run/"); found {
		return "/run/" + rest
	}
	return path
}
