package linux

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// leftoverFiles are patterns of files that a former node left on the host.
func leftoverFiles() []string {
	return []string{
		"/etc/kubernetes/*.conf", "/etc/kubernetes/manifests/*", "/etc/kubernetes/pki/*",
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env", "/var/lib/kubelet/pki/*", "/var/lib/kubelet/pods/*",
		"/var/lib/etcd/*",
		"/var/lib/cni/networks/*/*.*.*.*", "/var/lib/cni/networks/*/*:*", "/var/lib/cni/results/*",
		"/var/lib/rancher/*/server/db", "/var/lib/rancher/*/server/tls", "/var/lib/rancher/*/server/token",
		"/var/lib/rancher/*/agent/*.kubeconfig", "/var/lib/rancher/*/agent/pod-manifests/*", "/var/lib/rancher/*/agent/containerd",
	}
}

// leftoverCgroups are patterns of the cgroups of Pods. Only a reboot reverts
// everything that a node changed in the kernel; these cgroups show that there
// was no reboot.
func leftoverCgroups() []string {
	return []string{"/sys/fs/cgroup/kubepods*", "/sys/fs/cgroup/*/kubepods*"}
}

// leftoverMounts are prefixes of the mount points of Pods.
func leftoverMounts() []string {
	return []string{
		"/var/lib/kubelet/", "/run/netns/cni-", "/var/run/netns/cni-",
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/", "/run/containerd/io.containerd.grpc.v1.cri/", "/run/k3s/",
	}
}

// inspector finds the leftovers of former nodes.
type inspector struct {
	root         root
	processes    processes
	packetFilter packetFilter
	interfaces   func() ([]platform.NetworkInterface, error)
	endpoint     EndpointCleaner
	installation Installation
}

// Cleanliness returns the leftovers of former nodes; see the package's
// documentation.
func (i inspector) Cleanliness(ctx context.Context) (protocol.Cleanliness, error) {
	// Leftovers of the endpoint and of a bundle come first, so that the limit never hides
	// them: nothing else in the list implies them.
	served, err := i.endpoint.Leftovers(ctx)
	if err != nil {
		return protocol.Cleanliness{}, err
	}
	installed, err := i.installation.Leftovers(ctx)
	if err != nil {
		return protocol.Cleanliness{}, err
	}
	found := slices.Concat(served, installed, i.processes.kubernetes())
	points, err := mounts.Points(string(i.root))
	if err != nil {
		return protocol.Cleanliness{}, err
	}
	for _, prefix := range leftoverMounts() {
		found = append(found, summarize("mount", prefix+"*", withPrefix(points, prefix))...)
	}
	for _, kind := range []struct {
		name     string
		patterns []string
	}{{"file", leftoverFiles()}, {"cgroup", leftoverCgroups()}} {
		for _, pattern := range kind.patterns {
			names, err := i.glob(pattern)
			if err != nil {
				return protocol.Cleanliness{}, err
			}
			found = append(found, summarize(kind.name, pattern, names)...)
		}
	}
	interfaces, err := i.interfaces()
	if err != nil {
		return protocol.Cleanliness{}, err
	}
	for _, nic := range interfaces {
		if isCNIInterface(nic.Name) {
			found = append(found, "interface "+nic.Name)
		}
	}
	for _, chain := range i.packetFilter.leftovers(ctx) {
		found = append(found, "packet filter "+chain)
	}
	found = unique(found)
	return protocol.Cleanliness{Clean: len(found) == 0, Leftovers: found[:min(len(found), protocol.MaxLeftovers)]}, nil
}

// glob ignores lost+found, which every ext file system has.
func (i inspector) glob(pattern string) ([]string, error) {
	names, err := i.root.glob(pattern)
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == "lost+found" }), err
}

// unique removes repeated entries and keeps the order.
func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(entry string) bool {
		isRepeated := seen[entry]
		seen[entry] = true
		return isRepeated
	})
}

// summarize names a single leftover, or counts several that match a pattern.
func summarize(kind, pattern string, found []string) []string {
	switch len(found) {
	case 0:
		return nil
	case 1:
		return []string{kind + " " + found[0]}
	}
	return []string{fmt.Sprintf("%d %ss %s", len(found), kind, pattern)}
}

func withPrefix(points []string, prefix string) (found []string) {
	for _, point := range points {
		if strings.HasPrefix(point, prefix) {
			found = append(found, point)
		}
	}
	return found
}
