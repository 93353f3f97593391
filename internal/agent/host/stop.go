package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// kubeletUnit is stopped, and left enabled if it was: without a configuration
// it starts nothing, and the next bootstrap expects it like that.
const kubeletUnit = "kubelet.service"

// distributionUnits start a whole node without any configuration, so they are
// disabled; the bootstrap of k3s and RKE2 enables them again.
func distributionUnits() []string {
	return []string{"k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"}
}

// startingFiles are what would start the node again.
func startingFiles() []string {
	return []string{
		"/etc/kubernetes/manifests/*", "/etc/kubernetes/*.conf",
		"/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env",
	}
}

// Stop ends the node and its containers, and removes what would start it at the
// next boot. A process that doesn't end is no failure, because the reboot ends
// it.
//
// Containers are killed, not asked: one that ignores SIGTERM would hold up the
// reboot for as long as systemd waits for it, 90 seconds by default.
func (l *Linux) Stop(ctx context.Context) error {
	var failures []error
	for _, unit := range l.nodeUnits(ctx) {
		_ = l.stopUnit(ctx, unit)
		if unit != kubeletUnit {
			failures = append(failures, l.run(ctx, commandTimeout, "systemctl", "disable", unit))
		}
	}
	for _, pattern := range startingFiles() {
		failures = append(failures, l.removeAll(pattern))
	}
	l.killContainers(ctx)
	if l.endpoint != nil {
		// What stays is no reason to stay up: the reboot takes most of it, and Clean
		// tries again. But another host may have the VIP already.
		_ = l.endpoint.Remove(ctx)
	}
	if err := errors.Join(append(failures, ctx.Err())...); err != nil {
		return fmt.Errorf("stopping the node: %w", err)
	}
	return nil
}

// nodeUnits are the units of a node that systemd knows.
func (l *Linux) nodeUnits(ctx context.Context) []string {
	return slices.DeleteFunc(append([]string{kubeletUnit}, distributionUnits()...), func(unit string) bool {
		return !l.isLoaded(ctx, unit)
	})
}

// isLoaded reports whether systemd knows a unit.
func (l *Linux) isLoaded(ctx context.Context, unit string) bool {
	return l.unitState(ctx, "LoadState", unit) == "loaded"
}

func (l *Linux) isActive(ctx context.Context, unit string) bool {
	return l.unitState(ctx, "ActiveState", unit) == "active"
}

// unitState returns a property of a unit, or "" if systemd does not say.
func (l *Linux) unitState(ctx context.Context, property, unit string) string {
	state, err := l.output(ctx, commandTimeout, "systemctl", "show", "--property", property, "--value", unit)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(state)
}

// stopUnit kills what doesn't stop when it is asked to.
func (l *Linux) stopUnit(ctx context.Context, unit string) error {
	if l.run(ctx, stopTimeout, "systemctl", "stop", unit) == nil {
		return nil
	}
	_ = l.run(ctx, killTimeout, "systemctl", "kill", "--signal=KILL", unit)
	return l.run(ctx, killTimeout, "systemctl", "stop", unit)
}
