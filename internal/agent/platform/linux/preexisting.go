package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

const cniConfigDir = "/etc/cni/net.d"

// nodeDirectories are created by kubeadm, the kubelet, network plugins and the
// container runtime if they do not exist; the runtime creates those that
// kubeadm's Pods mount from the host. Inner directories come before outer ones.
func nodeDirectories() []string {
	return []string{
		"/etc/kubernetes/manifests", "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/cni",
		"/var/log/pods", "/var/log/containers", cniConfigDir, "/etc/cni", "/opt/cni/bin", "/opt/cni",
		"/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume",
		"/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes", "/lib/modules",
	}
}

// PreexistingPaths returns the CNI configurations on the host, and those of the
// nodeDirectories that exist.
func (c nodeCleaner) PreexistingPaths() ([]string, error) {
	configs, err := c.cniConfigs()
	if err != nil {
		return nil, err
	}
	return append(configs, slices.DeleteFunc(nodeDirectories(), func(dir string) bool { return !c.root.exists(dir) })...), nil
}

func (c nodeCleaner) cniConfigs() ([]string, error) {
	entries, err := os.ReadDir(c.root.path(cniConfigDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the CNI configurations: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		paths = append(paths, cniConfigDir+"/"+entry.Name())
	}
	return paths, nil
}

// removeCNIConfigs removes the configurations that were added after the
// bootstrap began, as network plugins that run as Pods do.
func (c nodeCleaner) removeCNIConfigs(preexisting []string) error {
	if preexisting == nil {
		return nil
	}
	configs, err := c.cniConfigs()
	if err != nil {
		return err
	}
	for _, path := range configs {
		if !slices.Contains(preexisting, path) {
			if err := os.RemoveAll(c.root.path(path)); err != nil {
				return fmt.Errorf("removing a CNI configuration: %w", err)
			}
		}
	}
	return nil
}

// removeDirectories removes the nodeDirectories that did not exist before the
// bootstrap and are empty.
func (c nodeCleaner) removeDirectories(preexisting []string) {
	if preexisting == nil {
		return
	}
	for _, dir := range nodeDirectories() {
		if !slices.Contains(preexisting, dir) {
			// It fails, as it should, for mount points and directories with content.
			_ = os.Remove(c.root.path(dir))
		}
	}
}
