package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/mounts"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// leftoverFiles are patterns of what a node leaves behind.
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

// leftoverCgroups are those of pods. Nothing but a reboot takes away all that a
// node changed in the kernel, and they tell that there was none.
func leftoverCgroups() []string {
	return []string{"/sys/fs/cgroup/kubepods*", "/sys/fs/cgroup/*/kubepods*"}
}

// leftoverMounts are where pods have mounts.
func leftoverMounts() []string {
	return []string{
		"/var/lib/kubelet/", "/run/netns/cni-", "/var/run/netns/cni-",
		"/run/containerd/io.containerd.runtime.v2.task/k8s.io/", "/run/containerd/io.containerd.grpc.v1.cri/", "/run/k3s/",
	}
}

// leftoverChains are what kube-proxy, the kubelet and CNI plugins put into the
// packet filter.
var leftoverChains = regexp.MustCompile(`^(:|\s*chain |table \S+ )((KUBE|CNI|FLANNEL)-|cali-|CILIUM_|kube-proxy\b|cni_hostport\b)`)

// Cleanliness looks for leftovers; see the package's documentation.
func (l *Linux) Cleanliness(ctx context.Context) (protocol.Cleanliness, error) {
	var found []string
	if l.endpoint != nil {
		// First, because nothing else tells of them.
		left, err := l.endpoint.Leftovers(ctx)
		if err != nil {
			return protocol.Cleanliness{}, err
		}
		found = append(found, left...)
	}
	found = append(found, l.processes()...)
	points, err := mounts.Points(l.root)
	if err != nil {
		return protocol.Cleanliness{}, err
	}
	for _, prefix := range leftoverMounts() {
		found = append(found, counted("mount", prefix+"*", under(points, prefix))...)
	}
	for _, pattern := range leftoverFiles() {
		files, err := l.leftFiles(pattern)
		if err != nil {
			return protocol.Cleanliness{}, err
		}
		found = append(found, counted("file", pattern, files)...)
	}
	for _, pattern := range leftoverCgroups() {
		cgroups, err := l.leftFiles(pattern)
		if err != nil {
			return protocol.Cleanliness{}, err
		}
		found = append(found, counted("cgroup", pattern, cgroups)...)
	}
	interfaces, err := l.interfaces()
	if err != nil {
		return protocol.Cleanliness{}, err
	}
	for _, nic := range interfaces {
		if isMadeByCNI(nic.Name) {
			found = append(found, "interface "+nic.Name)
		}
	}
	for _, chain := range l.chains(ctx) {
		found = append(found, "packet filter "+chain)
	}
	found = unique(found)
	return protocol.Cleanliness{Clean: len(found) == 0, Leftovers: found[:min(len(found), protocol.MaxLeftovers)]}, nil
}

// unique drops what was named before.
func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(one string) bool {
		again := seen[one]
		seen[one] = true
		return again
	})
}

// counted names what was found: itself, or how many there are of it.
func counted(kind, pattern string, found []string) []string {
	switch len(found) {
	case 0:
		return nil
	case 1:
		return []string{kind + " " + found[0]}
	}
	return []string{fmt.Sprintf("%d %ss %s", len(found), kind, pattern)}
}

func (l *Linux) leftFiles(pattern string) ([]string, error) {
	paths, err := filepath.Glob(l.path(pattern))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, path := range paths {
		name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, l.root), "/")
		// A file system of its own has this.
		if filepath.Base(name) != "lost+found" {
			found = append(found, name)
		}
	}
	return found, nil
}

// under returns the mount points that begin like this.
func under(points []string, prefix string) (found []string) {
	for _, point := range points {
		if strings.HasPrefix(point, prefix) {
			found = append(found, point)
		}
	}
	return found
}

// podMounts are all of them, in the order in which they were mounted.
func podMounts(points []string) (found []string) {
	for _, point := range points {
		if slices.ContainsFunc(leftoverMounts(), func(prefix string) bool { return strings.HasPrefix(point, prefix) }) {
			found = append(found, point)
		}
	}
	return found
}

// settledSeconds is the age at which a kubelet counts. An enabled unit without
// a configuration starts one now and then, which ends at once.
const settledSeconds = 8

// ticksPerSecond is the unit of times in /proc, the same on all architectures.
const ticksPerSecond = 100

// processes names what of Kubernetes runs.
func (l *Linux) processes() []string {
	names := []string{"kubelet", "k3s", "k3s-server", "k3s-agent", "rke2"}
	entries, err := os.ReadDir(l.path("/proc"))
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		base := "/proc/" + entry.Name()
		name := l.text(base + "/comm")
		switch {
		case slices.Contains(names, name):
			if l.ageSeconds(base) >= settledSeconds {
				counts["process "+name]++
			}
		case l.isKubernetesShim(base):
			counts["container of Kubernetes"]++
		}
	}
	var found []string
	for name, count := range counts {
		if count > 1 {
			name += " (" + strconv.Itoa(count) + ")"
		}
		found = append(found, name)
	}
	slices.Sort(found)
	return found
}

// ageSeconds is how long a process has been running.
func (l *Linux) ageSeconds(base string) float64 {
	uptime, _, _ := strings.Cut(l.text("/proc/uptime"), " ")
	now, err := strconv.ParseFloat(uptime, 64)
	// The name in brackets may hold anything, so it is skipped from behind.
	rest, ok := afterLast(l.text(base+"/stat"), ")")
	fields := strings.Fields(rest)
	if err != nil || !ok || len(fields) < 20 {
		return 0
	}
	started, err := strconv.ParseFloat(fields[19], 64)
	if err != nil {
		return 0
	}
	return now - started/ticksPerSecond
}

func afterLast(text, separator string) (after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return "", false
	}
	return text[i+len(separator):], true
}

// chains names the leftovers in the packet filter, as far as its programs are
// there to tell.
func (l *Linux) chains(ctx context.Context) []string {
	var found []string
	for _, list := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "list", "tables"}} {
		output, err := l.commands.Run(ctx, "", list...)
		if err != nil {
			continue
		}
		for line := range strings.Lines(output) {
			match := leftoverChains.FindString(line)
			if match == "" {
				continue
			}
			fields := strings.Fields(strings.TrimLeft(line, ": \t"))
			if list[0] == "nft" {
				found = append(found, strings.Join(fields, " "))
			} else if len(fields) > 0 {
				found = append(found, list[0][:len(list[0])-len("-save")]+" "+fields[0])
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
