package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits of the parts of a reset.
const (
	stopTimeout      = 30 * time.Second
	killTimeout      = 10 * time.Second
	rebootWait       = 2 * time.Minute
	forcedRebootWait = time.Minute
	runtimeWait      = 30 * time.Second
	runtimeLook      = 500 * time.Millisecond
	kubeadmTimeout   = 3 * time.Minute
	uninstallTimeout = 5 * time.Minute
	commandTimeout   = 30 * time.Second
)

// Present are the paths that a node adds to and that are on the host: the CNI
// configurations, and the directories that are made when they are missing.
func (l *Linux) Present() ([]string, error) {
	configs, err := l.cniConfigs()
	if err != nil {
		return nil, err
	}
	return append(configs, slices.DeleteFunc(nodeDirectories(), func(dir string) bool { return !l.exists(dir) })...), nil
}

func (l *Linux) cniConfigs() ([]string, error) {
	entries, err := os.ReadDir(l.path("/etc/cni/net.d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the CNI configurations: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		paths = append(paths, "/etc/cni/net.d/"+entry.Name())
	}
	return paths, nil
}

// agentUnit goes on with a reset after the reboot.
const agentUnit = "elemental-agent.service"

// Reboot reboots the host, by force if it doesn't go down by itself. It refuses
// where the agent would not come up again and the reset be left half done.
func (l *Linux) Reboot(ctx context.Context) error {
	enabled, err := l.output(ctx, commandTimeout, "systemctl", "is-enabled", agentUnit)
	if state := strings.TrimSpace(enabled); state != "enabled" {
		if state == "" && err != nil {
			return err
		}
		return fmt.Errorf("%s is %s and would not go on after a reboot: enable it", agentUnit, state)
	}
	var failures []error
	for _, attempt := range []struct {
		args []string
		wait time.Duration
	}{
		{[]string{"systemctl", "--no-wall", "reboot"}, rebootWait},
		{[]string{"systemctl", "--no-wall", "--force", "reboot"}, forcedRebootWait},
		// Without an end of processes and mounts, for those that wait for hardware or
		// a server that is gone. It writes to disk what is not written yet.
		{[]string{"systemctl", "--no-wall", "--force", "--force", "reboot"}, forcedRebootWait},
	} {
		if err := l.run(ctx, commandTimeout, attempt.args...); err != nil {
			// A systemd that doesn't answer is why there are the others.
			failures = append(failures, err)
			continue
		}
		if err := l.clock.Wait(ctx, attempt.wait); err != nil {
			return err
		}
	}
	return errors.Join(append(failures, errors.New("the host was told to reboot and is still running"))...)
}

// Clean removes what a node leaves behind. keep are what Present found before the
// bootstrap; nil means that nobody knows. It goes on after a failure, because
// the next part may make up for it, and returns those that still matter.
func (l *Linux) Clean(ctx context.Context, keep []string) error {
	var failures []error
	for _, unit := range l.nodeUnits(ctx) {
		failures = append(failures, l.stopUnit(ctx, unit))
	}
	failures = append(failures, l.uninstallDistributions(ctx), l.kubeadmReset(ctx))
	l.killContainers(ctx)
	failures = append(failures, l.unmountPods(), l.wipe(), l.removeCNIConfigs(keep))
	if l.endpoint != nil {
		failures = append(failures, l.endpoint.Remove(ctx))
	}
	l.removeDirectories(keep)
	l.removeInterfaces(ctx)
	l.cleanFilter(ctx)
	return errors.Join(failures...)
}

// uninstallDistributions runs what the installers of k3s and RKE2 left.
func (l *Linux) uninstallDistributions(ctx context.Context) error {
	var failures []error
	for _, name := range []string{
		"k3s-uninstall.sh", "k3s-agent-uninstall.sh", "rke2-uninstall.sh",
	} {
		if script := l.program(name); script != "" {
			failures = append(failures, l.run(ctx, uninstallTimeout, script))
		}
	}
	return errors.Join(failures...)
}

// kubeadmReset has kubeadm remove the pods, for which it needs the container
// runtime. What it can't do is done by the rest of Clean, so it doesn't fail.
func (l *Linux) kubeadmReset(ctx context.Context) error {
	kubeadm := l.program("kubeadm")
	if kubeadm == "" {
		return nil
	}
	if err := l.awaitRuntime(ctx); err != nil {
		return err
	}
	_ = l.run(ctx, kubeadmTimeout, kubeadm, "reset", "--force", "--skip-phases=remove-etcd-member")
	return ctx.Err()
}

// awaitRuntime waits until a container runtime that has a unit is ready, but not
// for long. After a boot containerd has its socket a moment before it answers
// anything there; its unit is active when it does.
func (l *Linux) awaitRuntime(ctx context.Context) error {
	units := slices.DeleteFunc([]string{"containerd.service", "crio.service"}, func(unit string) bool { return !l.isLoaded(ctx, unit) })
	sockets := []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock"}
	ready := func() bool {
		return l.anyExists(sockets) && slices.ContainsFunc(units, func(unit string) bool { return l.isActive(ctx, unit) })
	}
	deadline := l.clock.Now().Add(runtimeWait)
	for len(units) > 0 && !ready() && l.clock.Now().Before(deadline) {
		if err := l.clock.Wait(ctx, runtimeLook); err != nil {
			return err
		}
	}
	return nil
}

func (l *Linux) anyExists(names []string) bool {
	return slices.ContainsFunc(names, l.exists)
}

// program finds a program of the host, or returns "".
func (l *Linux) program(name string) string {
	for _, dir := range []string{"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin", "/opt/bin", "/opt/rke2/bin"} {
		info, err := os.Stat(l.path(dir + "/" + name))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + "/" + name
		}
	}
	return ""
}

// removeCNIConfigs removes those that came after the bootstrap began, as
// network plugins that run as pods install them.
func (l *Linux) removeCNIConfigs(keep []string) error {
	if keep == nil {
		return nil
	}
	now, err := l.cniConfigs()
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, path := range keep {
		kept[path] = true
	}
	for _, path := range now {
		if !kept[path] {
			if err := os.RemoveAll(l.path(path)); err != nil {
				return fmt.Errorf("removing a CNI configuration: %w", err)
			}
		}
	}
	return nil
}

// removeAll removes everything that a pattern matches.
func (l *Linux) removeAll(pattern string) error {
	paths, err := filepath.Glob(l.path(pattern))
	if err != nil {
		return err
	}
	var failures []error
	for _, path := range paths {
		failures = append(failures, l.remove(strings.TrimPrefix(path, strings.TrimSuffix(l.root, "/"))))
	}
	return errors.Join(failures...)
}

func (l *Linux) run(ctx context.Context, timeout time.Duration, args ...string) error {
	_, err := l.output(ctx, timeout, args...)
	return err
}

func (l *Linux) output(ctx context.Context, timeout time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return l.commands.Run(ctx, "", args...)
}
