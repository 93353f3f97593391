package linux

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// Time limits of the parts of Clean.
const (
	runtimeWait         = 30 * time.Second
	runtimePollInterval = 500 * time.Millisecond
	kubeadmTimeout      = 3 * time.Minute
	uninstallTimeout    = 5 * time.Minute
	originsTimeout      = 2 * time.Minute
)

// nodeCleaner removes the leftovers of a node.
type nodeCleaner struct {
	root         root
	stopper      nodeStopper
	runner       runner
	packetFilter packetFilter
	kernel       Kernel
	clock        retry.Clock
	interfaces   func() ([]platform.NetworkInterface, error)
	// origin says who has installed a program; it is blank if that is unknown.
	origin func(ctx context.Context, path string) protocol.Origin
}

// Clean removes the leftovers of a node. preexisting are the paths that
// PreexistingPaths returned before the bootstrap; nil means that they are
// unknown. Clean continues after a failure, because a later part may remove the
// same leftovers, and returns the failures that still matter.
func (c nodeCleaner) Clean(ctx context.Context, preexisting []string) error {
	var failures []error
	for _, unit := range c.stopper.units(ctx) {
		failures = append(failures, c.stopper.systemd.stop(ctx, unit))
	}
	failures = append(failures, c.uninstallDistributions(ctx), c.kubeadmReset(ctx))
	c.stopper.processes.killContainers(ctx)
	failures = append(failures, c.unmountPods(), c.wipe(), c.removeNetworkPlugin(ctx, preexisting), c.stopper.endpoint.Remove(ctx))
	c.removeDirectories(preexisting)
	c.removeInterfaces(ctx)
	c.packetFilter.clean(ctx)
	return errors.Join(failures...)
}

// uninstallDistributions runs the uninstallers of k3s and RKE2.
func (c nodeCleaner) uninstallDistributions(ctx context.Context) error {
	var failures []error
	for _, name := range []string{
		"k3s-uninstall.sh", "k3s-agent-uninstall.sh", "rke2-uninstall.sh",
	} {
		if script := c.root.program(name); script != "" {
			failures = append(failures, c.runner.run(ctx, uninstallTimeout, script))
		}
	}
	return errors.Join(failures...)
}

// kubeadmReset runs kubeadm reset, which removes the Pods with the help of the
// container runtime. Its failure is ignored: the other parts of Clean remove
// the same leftovers.
func (c nodeCleaner) kubeadmReset(ctx context.Context) error {
	kubeadm := c.root.program("kubeadm")
	if kubeadm == "" {
		return nil
	}
	if err := c.awaitRuntime(ctx); err != nil {
		return err
	}
	_ = c.runner.run(ctx, kubeadmTimeout, kubeadm, "reset", "--force", "--skip-phases=remove-etcd-member")
	return ctx.Err()
}

// awaitRuntime waits up to runtimeWait until an installed container runtime is
// ready. containerd creates its socket before it answers requests; its unit is
// active only when it does.
func (c nodeCleaner) awaitRuntime(ctx context.Context) error {
	systemd := c.stopper.systemd
	units := slices.DeleteFunc([]string{"containerd.service", "crio.service"}, func(unit string) bool { return !systemd.isLoaded(ctx, unit) })
	sockets := []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock"}
	isReady := func() bool {
		return c.root.anyExists(sockets) && slices.ContainsFunc(units, func(unit string) bool { return systemd.isActive(ctx, unit) })
	}
	deadline := c.clock.Now().Add(runtimeWait)
	for len(units) > 0 && !isReady() && c.clock.Now().Before(deadline) {
		if err := c.clock.Wait(ctx, runtimePollInterval); err != nil {
			return err
		}
	}
	return nil
}

// removeInterfaces deletes the network interfaces of CNI plugins. It returns no
// error: Cleanliness reports those that still exist.
func (c nodeCleaner) removeInterfaces(ctx context.Context) {
	interfaces, err := c.interfaces()
	if err != nil {
		return
	}
	for _, nic := range interfaces {
		if isCNIInterface(nic.Name) {
			_ = c.runner.run(ctx, commandTimeout, "ip", "link", "delete", nic.Name)
		}
	}
}
