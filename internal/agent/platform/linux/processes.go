package linux

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
)

// minKubeletSeconds is the age at which a node process counts as running. An
// enabled kubelet unit without a configuration starts a process from time to
// time that ends immediately.
const minKubeletSeconds = 8

// ticksPerSecond is the unit of times in /proc, the same on all architectures.
const ticksPerSecond = 100

// processes finds and kills the processes of Kubernetes.
type processes struct {
	root   root
	kernel Kernel
}

// kubernetes describes the processes of Kubernetes that run.
func (p processes) kubernetes() []string {
	names := []string{"kubelet", "k3s", "k3s-server", "k3s-agent", "rke2"}
	entries, err := os.ReadDir(p.root.path("/proc"))
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		base := "/proc/" + entry.Name()
		name := p.root.text(base + "/comm")
		switch {
		case slices.Contains(names, name):
			if p.ageSeconds(base) >= minKubeletSeconds {
				counts["process "+name]++
			}
		case p.isKubernetesShim(base):
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

// ageSeconds returns how long a process has been running.
func (p processes) ageSeconds(base string) float64 {
	uptime, _, _ := strings.Cut(p.root.text("/proc/uptime"), " ")
	now, err := strconv.ParseFloat(uptime, 64)
	// The process's name in brackets may contain any character.
	rest, ok := afterLast(p.root.text(base+"/stat"), ")")
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

// killContainers kills the shims of Kubernetes containers and all their
// descendants. They run if the host did not reboot or the container runtime
// does not respond.
func (p processes) killContainers(ctx context.Context) {
	children, shims := p.tree()
	var doomed []int
	for generation := shims; len(generation) > 0; {
		doomed = append(doomed, generation...)
		var next []int
		for _, pid := range generation {
			next = append(next, children[pid]...)
		}
		generation = next
	}
	for _, pid := range doomed {
		if ctx.Err() != nil {
			return
		}
		// The process may have ended in between.
		_ = p.kernel.Kill(pid)
	}
}

// tree returns the children of every process, and the shims of Kubernetes
// containers.
func (p processes) tree() (children map[int][]int, shims []int) {
	children = map[int][]int{}
	entries, err := os.ReadDir(p.root.path("/proc"))
	if err != nil {
		return children, nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		base := "/proc/" + entry.Name()
		if rest, ok := afterLast(p.root.text(base+"/stat"), ")"); ok {
			if fields := strings.Fields(rest); len(fields) > 1 {
				if parent, err := strconv.Atoi(fields[1]); err == nil {
					children[parent] = append(children[parent], pid)
				}
			}
		}
		if p.isKubernetesShim(base) {
			shims = append(shims, pid)
		}
	}
	return children, shims
}

func (p processes) isKubernetesShim(base string) bool {
	if !strings.HasPrefix(p.root.text(base+"/comm"), "containerd-shim") {
		return false
	}
	command, _ := os.ReadFile(p.root.path(base + "/cmdline"))
	return bytes.Contains(command, []byte("\x00k8s.io\x00"))
}

func afterLast(text, separator string) (after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return "", false
	}
	return text[i+len(separator):], true
}
