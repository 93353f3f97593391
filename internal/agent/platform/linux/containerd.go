package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

// containerdDirectories have the images, the containers and the state of containerd, and the
// socket of its plugins.
func containerdDirectories() []string {
	return []string{"/var/lib/containerd", "/run/containerd", "/run/nri"}
}

// optionalDirectories are those that containerd makes for programs that images may have. Other
// software may be in them.
func optionalDirectories() []string {
	return []string{"/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd"}
}

// RemoveContainerd removes all that containerd stored. containerd must have been stopped.
// It kills the containers of Kubernetes that still run, because these use the files.
func (c nodeCleaner) RemoveContainerd(ctx context.Context) error {
	c.stopper.processes.killContainers(ctx)
	points, err := mounts.Points(string(c.root))
	if err != nil {
		return fmt.Errorf("unmounting what containerd had mounted: %w", err)
	}
	var failures []error
	for _, point := range slices.Backward(points) {
		if slices.ContainsFunc(containerdDirectories(), func(dir string) bool { return len(withPrefix([]string{point}, dir+"/")) > 0 }) {
			if err := c.kernel.Unmount(c.root.path(point)); err != nil {
				failures = append(failures, fmt.Errorf("unmounting %s: %w", point, err))
			}
		}
	}
	for _, dir := range containerdDirectories() {
		failures = append(failures, c.empty(dir))
		// It fails, as it should, for a mount point.
		_ = os.Remove(c.root.path(dir))
	}
	for _, dir := range optionalDirectories() {
		// It fails, as it should, for a directory with content.
		_ = os.Remove(c.root.path(dir))
	}
	return errors.Join(failures...)
}

// empty removes the content of a directory, which may be a disk of its own.
func (c nodeCleaner) empty(dir string) error {
	names, err := c.root.glob(dir + "/*")
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		if filepath.Base(name) != "lost+found" {
			failures = append(failures, c.root.remove(name))
		}
	}
	return errors.Join(failures...)
}
