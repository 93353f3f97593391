package linux

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// kubeletUnit is stopped, but not disabled: without a configuration the kubelet
// ends immediately, and kubeadm expects the unit to be enabled.
const kubeletUnit = "kubelet.service"

// distributionUnits start a whole node without any configuration, so they are
// disabled; the bootstrap of k3s and RKE2 enables them again.
func distributionUnits() []string {
	return []string{"k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"}
}

// startFiles are patterns of files that start the node at the next boot.
func startFiles() []string {
	return []string{
		"/etc/kubernetes/manifests/*", "/etc/kubernetes/*.conf",
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env",
	}
}

// nodeStopper stops the node on the host.
type nodeStopper struct {
	root      root
	systemd   systemd
	processes processes
	endpoint  EndpointCleaner
}

// Stop ends the node and its containers, and removes what would start it at the
// next boot. A process that does not end is no error, because the reboot ends
// it.
//
// Containers are killed: one that ignores SIGTERM would delay the reboot until
// systemd's timeout, 90 seconds by default.
func (s nodeStopper) Stop(ctx context.Context) error {
	var failures []error
	for _, unit := range s.units(ctx) {
		_ = s.systemd.stop(ctx, unit)
		if unit != kubeletUnit {
			failures = append(failures, s.systemd.disable(ctx, unit))
		}
	}
	for _, pattern := range startFiles() {
		failures = append(failures, s.root.removeAll(pattern))
	}
	s.processes.killContainers(ctx)
	// Another host may already use the virtual address, so it is removed before
	// the reboot. A failure must not prevent the reboot, which removes most of
	// it; Clean tries again.
	_ = s.endpoint.Remove(ctx)
	if err := errors.Join(append(failures, ctx.Err())...); err != nil {
		return fmt.Errorf("stopping the node: %w", err)
	}
	return nil
}

// units returns the units of a node that systemd knows.
func (s nodeStopper) units(ctx context.Context) []string {
	return slices.DeleteFunc(append([]string{kubeletUnit}, distributionUnits()...), func(unit string) bool {
		return !s.systemd.isLoaded(ctx, unit)
	})
}
