package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The directories into which network plugins that run as Pods write.
const (
	cniConfigDir   = "/etc/cni/net.d"
	cniProgramsDir = "/opt/cni/bin"
)

// nodeDirectories are created by kubeadm, the kubelet, network plugins and the
// container runtime if they do not exist; the runtime creates those that
// kubeadm's Pods mount from the host. Inner directories come before outer ones.
func nodeDirectories() []string {
	return []string{
		"/etc/kubernetes/manifests", "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/cni",
		"/var/log/pods", "/var/log/containers", cniConfigDir, "/etc/cni", cniProgramsDir, "/opt/cni",
		"/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume",
		"/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes", "/lib/modules",
	}
}

// PreexistingPaths returns the CNI configurations and programs on the host, and
// those of the nodeDirectories that exist.
func (c nodeCleaner) PreexistingPaths() ([]string, error) {
	configs, err := c.entries(cniConfigDir)
	if err != nil {
		return nil, err
	}
	programs, err := c.entries(cniProgramsDir)
	if err != nil {
		return nil, err
	}
	dirs := slices.DeleteFunc(nodeDirectories(), func(dir string) bool { return !c.root.exists(dir) })
	return slices.Concat(configs, programs, dirs), nil
}

// entries returns the paths of what a directory contains; nothing if it does not exist.
func (c nodeCleaner) entries(dir string) ([]string, error) {
	entries, err := os.ReadDir(c.root.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing what network plugins have written: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		paths = append(paths, dir+"/"+entry.Name())
	}
	return paths, nil
}

// removeNetworkPlugin removes the configurations and programs that were added
// after the bootstrap began, as network plugins that run as Pods do.
func (c nodeCleaner) removeNetworkPlugin(ctx context.Context, preexisting []string) error {
	if preexisting == nil {
		return nil
	}
	configs, err := c.entries(cniConfigDir)
	if err != nil {
		return err
	}
	programs, err := c.entries(cniProgramsDir)
	if err != nil {
		return err
	}
	isOld := func(path string) bool { return slices.Contains(preexisting, path) }
	added := slices.Concat(slices.DeleteFunc(configs, isOld), c.ownedByNobody(ctx, slices.DeleteFunc(programs, isOld), preexisting))
	for _, path := range added {
		if err := os.RemoveAll(c.root.path(path)); err != nil {
			return fmt.Errorf("removing what a network plugin has written: %w", err)
		}
	}
	return nil
}

// ownedByNobody returns those of the added CNI programs that neither a package nor
// a bundle has brought: the bootstrap data may have installed packages, and would
// not again. Those that are not known in time stay.
func (c nodeCleaner) ownedByNobody(ctx context.Context, programs, preexisting []string) []string {
	isProgram := func(path string) bool { return strings.HasPrefix(path, cniProgramsDir+"/") }
	if slices.Contains(preexisting, cniProgramsDir) && !slices.ContainsFunc(preexisting, isProgram) {
		return nil // an agent that recorded no programs began the bootstrap
	}
	ctx, cancel := context.WithTimeout(ctx, originsTimeout)
	defer cancel()
	return slices.DeleteFunc(programs, func(path string) bool {
		return ctx.Err() != nil || c.origin(ctx, path) != protocol.OriginOther
	})
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
