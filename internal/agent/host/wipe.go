package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
)

// nodeData are the patterns of all that a node writes. Container images,
// programs and the directories themselves stay. The kubeadm provider's
// Ignition moves its configuration, with a token in it, to /tmp.
func nodeData() []string {
	return []string{
		"/etc/kubernetes/*.conf", "/etc/kubernetes/manifests/*", "/etc/kubernetes/pki", "/etc/kubernetes/tmp", "/tmp/kubeadm.yml",
		"/var/lib/kubelet/*", "/var/lib/etcd/*",
		"/var/lib/cni/*", "/var/lib/calico", "/var/lib/weave", "/var/lib/cilium", "/run/flannel", "/run/calico", "/run/cilium",
		"/var/log/pods/*", "/var/log/containers/*",
		"/var/lib/rancher/k3s/server", "/var/lib/rancher/k3s/data", "/var/lib/rancher/rke2/server", "/var/lib/rancher/rke2/data",
		"/etc/rancher/node", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml", "/run/k3s",
	}
}

// agentData are the directories of which k3s and RKE2 want only the images
// kept, which were put there for hosts without a registry.
func agentData() []string {
	return []string{"/var/lib/rancher/k3s/agent", "/var/lib/rancher/rke2/agent"}
}

// nodeDirectories are made by kubeadm, the kubelet, network plugins and the
// container runtime where they are missing, the runtime for what kubeadm's Pods
// mount of the host. Those within others come first.
func nodeDirectories() []string {
	return []string{
		"/etc/kubernetes/manifests", "/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/cni",
		"/var/log/pods", "/var/log/containers", "/etc/cni/net.d", "/etc/cni", "/opt/cni/bin", "/opt/cni",
		"/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume",
		"/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes", "/lib/modules",
	}
}

// removeDirectories removes those that were not there and are empty again.
func (l *Linux) removeDirectories(keep []string) {
	if keep == nil {
		return
	}
	for _, dir := range nodeDirectories() {
		if !slices.Contains(keep, dir) {
			// One that holds something, or that is a file system of its own, stays.
			_ = os.Remove(l.path(dir))
		}
	}
}

// imagesDir is what is kept of agentData.
const imagesDir = "images"

func (l *Linux) wipe() error {
	var failures []error
	for _, pattern := range nodeData() {
		failures = append(failures, l.removeAll(pattern))
	}
	for _, dir := range agentData() {
		entries, err := os.ReadDir(l.path(dir))
		if err != nil {
			continue // there is none
		}
		for _, entry := range entries {
			if entry.Name() != imagesDir {
				failures = append(failures, l.remove(dir+"/"+entry.Name()))
			}
		}
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("wiping the node's data: %w", err)
	}
	return nil
}

// remove removes a file or directory, unless something is mounted in it: what a
// Pod had mounted from elsewhere, such as a volume on a file server, is not the
// node's to delete. The kernel names mounts by their real paths, and a directory
// such as /var/lib/kubelet may be a link to another disk.
func (l *Linux) remove(name string) error {
	path := l.path(name)
	resolved, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	resolved = filepath.Join("/", strings.TrimPrefix(resolved, l.root), filepath.Base(path))
	points, err := mounts.Points(l.root)
	if err != nil {
		return fmt.Errorf("%s was kept: %w", name, err)
	}
	if mount, found := mounts.At(points, resolved); found {
		return fmt.Errorf("%s was kept, because %s is mounted: unmount it", name, mount)
	}
	return os.RemoveAll(path)
}

// unmountPods detaches the innermost mounts first.
func (l *Linux) unmountPods() error {
	points, err := mounts.Points(l.root)
	if err != nil {
		return fmt.Errorf("unmounting what Pods had mounted: %w", err)
	}
	var failures []error
	for _, mount := range slices.Backward(podMounts(points)) {
		if err := l.kernel.Unmount(l.path(mount)); err != nil {
			failures = append(failures, fmt.Errorf("unmounting %s: %w", mount, err))
		}
	}
	return errors.Join(failures...)
}

// killContainers ends the containers that kubeadm left, on a host that didn't
// reboot or whose runtime doesn't answer: their shims and all below.
func (l *Linux) killContainers(ctx context.Context) {
	children, shims := l.processTree()
	var doomed []int
	for next := shims; len(next) > 0; {
		doomed = append(doomed, next...)
		var below []int
		for _, pid := range next {
			below = append(below, children[pid]...)
		}
		next = below
	}
	for _, pid := range doomed {
		if ctx.Err() != nil {
			return
		}
		// One that ended meanwhile is as good.
		_ = l.kernel.Kill(pid)
	}
}

func (l *Linux) processTree() (children map[int][]int, shims []int) {
	children = map[int][]int{}
	entries, err := os.ReadDir(l.path("/proc"))
	if err != nil {
		return children, nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		base := "/proc/" + entry.Name()
		if rest, ok := afterLast(l.text(base+"/stat"), ")"); ok {
			if fields := strings.Fields(rest); len(fields) > 1 {
				if parent, err := strconv.Atoi(fields[1]); err == nil {
					children[parent] = append(children[parent], pid)
				}
			}
		}
		if l.isKubernetesShim(base) {
			shims = append(shims, pid)
		}
	}
	return children, shims
}

func (l *Linux) isKubernetesShim(base string) bool {
	if !strings.HasPrefix(l.text(base+"/comm"), "containerd-shim") {
		return false
	}
	command, _ := os.ReadFile(l.path(base + "/cmdline"))
	return bytes.Contains(command, []byte("\x00k8s.io\x00"))
}

// removeInterfaces deletes what CNI plugins made; what is left shows when the
// host is looked at again.
func (l *Linux) removeInterfaces(ctx context.Context) {
	interfaces, err := l.interfaces()
	if err != nil {
		return
	}
	for _, nic := range interfaces {
		if isMadeByCNI(nic.Name) {
			_ = l.run(ctx, commandTimeout, "ip", "link", "delete", nic.Name)
		}
	}
}

// deleteChains deletes the chains that a restore leaves: it passes over tables
// that have no chains but those.
func (l *Linux) deleteChains(ctx context.Context, program string) {
	saved, err := l.output(ctx, commandTimeout, program+"-save")
	if err != nil {
		return
	}
	var table string
	for line := range strings.Lines(saved) {
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = strings.TrimSpace(name)
			continue
		}
		name, ok := strings.CutPrefix(line, ":")
		if !ok || !leftoverRule.MatchString(line) {
			continue
		}
		chain, _, _ := strings.Cut(name, " ")
		for _, action := range []string{"--flush", "--delete-chain"} {
			_ = l.run(ctx, commandTimeout, program, "--table", table, action, chain)
		}
	}
}

// leftoverRule is a line of iptables-save that belongs to Kubernetes.
var leftoverRule = regexp.MustCompile(`(?m)(^:|\s)((KUBE|CNI|FLANNEL)-|cali-|CILIUM_)`)

// cleanFilter removes the rules of Kubernetes and leaves everybody else's.
func (l *Linux) cleanFilter(ctx context.Context) {
	for _, program := range []string{"iptables", "ip6tables"} {
		saved, err := l.output(ctx, commandTimeout, program+"-save")
		if err != nil || !leftoverRule.MatchString(saved) {
			continue
		}
		var kept strings.Builder
		for line := range strings.Lines(saved) {
			if !leftoverRule.MatchString(line) {
				kept.WriteString(line)
			}
		}
		_, _ = l.commands.Run(ctx, kept.String(), program+"-restore")
		l.deleteChains(ctx, program)
	}
	tables, err := l.output(ctx, commandTimeout, "nft", "list", "tables")
	if err != nil {
		return
	}
	for line := range strings.Lines(tables) {
		if leftoverChains.MatchString(line) {
			_ = l.run(ctx, commandTimeout, append([]string{"nft", "delete"}, strings.Fields(line)...)...)
		}
	}
}
