package linux

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

// nodeData are patterns of all files that a node writes. Container images,
// programs and the directories themselves stay. Ignition of the kubeadm
// bootstrap provider moves its configuration, with a token in it, to /tmp.
func nodeData() []string {
	return []string{
		"/etc/kubernetes/*.conf", "/etc/kubernetes/manifests/*", "/etc/kubernetes/pki", "/etc/kubernetes/tmp", "/etc/kubernetes.before-*", "/tmp/kubeadm.yml",
		"/var/lib/kubelet/*", "/var/lib/etcd/*",
		"/var/lib/cni/*", "/var/lib/calico", "/var/lib/weave", "/var/lib/cilium", "/run/flannel", "/run/calico", "/run/cilium",
		"/var/log/pods/*", "/var/log/containers/*",
		"/var/lib/rancher/k3s/server", "/var/lib/rancher/k3s/data", "/var/lib/rancher/rke2/server", "/var/lib/rancher/rke2/data",
		"/etc/rancher/node", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml", "/run/k3s",
	}
}

// agentData are the directories of k3s and RKE2 that are wiped except for their
// images, which were put there for hosts without a registry.
func agentData() []string {
	return []string{"/var/lib/rancher/k3s/agent", "/var/lib/rancher/rke2/agent"}
}

// imagesDir is the only directory in agentData that is kept.
const imagesDir = "images"

func (c nodeCleaner) wipe() error {
	var failures []error
	for _, pattern := range nodeData() {
		failures = append(failures, c.root.removeAll(pattern))
	}
	for _, dir := range agentData() {
		entries, err := os.ReadDir(c.root.path(dir))
		if err != nil {
			continue // the distribution is not installed
		}
		for _, entry := range entries {
			if entry.Name() != imagesDir {
				failures = append(failures, c.root.remove(dir+"/"+entry.Name()))
			}
		}
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("wiping the node's data: %w", err)
	}
	return nil
}

// unmountPods detaches the mounts of Pods, the innermost first.
func (c nodeCleaner) unmountPods() error {
	points, err := mounts.Points(string(c.root))
	if err != nil {
		return fmt.Errorf("unmounting what Pods had mounted: %w", err)
	}
	var failures []error
	for _, mount := range slices.Backward(podMounts(points)) {
		if err := c.kernel.Unmount(c.root.path(mount)); err != nil {
			failures = append(failures, fmt.Errorf("unmounting %s: %w", mount, err))
		}
	}
	return errors.Join(failures...)
}

// podMounts returns the mount points of Pods in the order of mounting.
func podMounts(points []string) (found []string) {
	for _, point := range points {
		if slices.ContainsFunc(leftoverMounts(), func(prefix string) bool { return strings.HasPrefix(point, prefix) }) {
			found = append(found, point)
		}
	}
	return found
}
