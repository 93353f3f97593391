package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/shell"
)

// Logs writes what explains a failure into a folder: of the management cluster all objects but Secrets, events and the
// logs of all pods; of each host the journal, the logs of its pods and the state of its services and network. It goes
// on when a part can't be had and returns all such errors together.
func (l *Lab) Logs(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the folder for logs: %w", err)
	}
	return l.progress.Step("Collecting logs in "+folder, func() error {
		hosts, err := l.engine.Hosts(ctx)
		errs := []error{err}
		for _, host := range hosts {
			errs = append(errs, l.hostLogs(ctx, host, filepath.Join(folder, host.Name)))
		}
		if _, err := os.Stat(l.Kubeconfig()); err == nil {
			errs = append(errs, l.clusterLogs(ctx, filepath.Join(folder, "management-cluster")))
		}
		return errors.Join(errs...)
	})
}

// hostLogs collects what a host can tell. One that is off leaves only what Docker noted.
func (l *Lab) hostLogs(ctx context.Context, host *engine.Host, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	console, err := l.engine.Docker(ctx, "logs", "--timestamps", "--tail", "500", host.Container())
	errs := []error{err, writeFile(filepath.Join(folder, "console.log"), []byte(console))}
	if running, err := host.Running(ctx); err != nil || !running {
		return errors.Join(append(errs, err)...)
	}
	for name, script := range map[string]string{
		"elemental-agent.log": "journalctl --no-pager --output short-precise --unit elemental-agent",
		"kubelet.log":         "journalctl --no-pager --output short-precise --unit kubelet",
		"containerd.log":      "journalctl --no-pager --output short-precise --unit containerd",
		"journal.log":         "journalctl --no-pager --output short-precise --lines 5000",
		"services.txt":        "systemctl --no-pager list-units --all; systemctl --no-pager --failed",
		"processes.txt":       "ps -eo pid,ppid,rss,lstart,args --forest",
		"network.txt":         "ip address; ip route; ss -tlnp 2>/dev/null; iptables-save; nft list ruleset",
		"mounts.txt":          "cat /proc/mounts; df -h",
		"containers.txt":      "ctr --namespace k8s.io containers list; ctr --namespace k8s.io tasks list",
		// Certificates and keys stay where they are.
		"files.txt": "ls -laR /etc/kubernetes /etc/cni /etc/elemental /var/lib/elemental /var/lib/kubelet/pki /run/cluster-api /run/kubeadm /var/lib/etcd/member/wal",
	} {
		// Some of it fails on any host, such as a folder that only control planes have.
		out, err := host.Exec(ctx, "sh", "-c", "{ "+script+"; } 2>&1 || true")
		errs = append(errs, err, writeFile(filepath.Join(folder, name), []byte(out)))
	}
	return errors.Join(append(errs, l.podLogs(ctx, host, folder))...)
}

// podLogs copies the logs of all pods that ran on a host, whichever cluster it was in.
func (l *Lab) podLogs(ctx context.Context, host *engine.Host, folder string) error {
	if _, err := host.Exec(ctx, "test", "-d", "/var/log/pods"); err != nil {
		return nil
	}
	archive, err := os.Create(filepath.Join(folder, "pods.tar.gz"))
	if err != nil {
		return fmt.Errorf("making a file for pod logs: %w", err)
	}
	defer func() { _ = archive.Close() }()
	_, err = shell.Command{
		Args:   []string{"docker", "exec", host.Container(), "tar", "--create", "--gzip", "--directory", "/var/log", "pods"},
		Stdout: archive,
	}.Run(ctx)
	if err != nil {
		return fmt.Errorf("copying pod logs: %w", err)
	}
	return nil
}

// clusterLogs collects objects, events and pod logs of the management cluster.
func (l *Lab) clusterLogs(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	kinds, err := l.Kubectl(ctx, "api-resources", "--verbs", "list", "--output", "name")
	errs := []error{err}
	for _, kind := range strings.Fields(kinds) {
		// Secrets would be a leak, events come as a table, and the rest is a copy of other kinds.
		if kind == "secrets" || strings.HasPrefix(kind, "events") || strings.HasSuffix(kind, "metrics.k8s.io") {
			continue
		}
		if kind == "customresourcedefinitions.apiextensions.k8s.io" {
			continue
		}
		out, err := l.Kubectl(ctx, "get", kind, "--all-namespaces", "--output", "yaml")
		errs = append(errs, err)
		if strings.Contains(out, "\n  kind: ") || strings.Contains(out, "\n- apiVersion") {
			errs = append(errs, writeFile(filepath.Join(folder, "objects", kind+".yaml"), []byte(out)))
		}
	}
	out, err := l.Kubectl(ctx, "get", "events", "--all-namespaces", "--sort-by", ".lastTimestamp")
	errs = append(errs, err, writeFile(filepath.Join(folder, "events.txt"), []byte(out)))
	pods, err := l.Kubectl(ctx, "get", "pods", "--all-namespaces", "--output",
		`jsonpath={range .items[*]}{.metadata.namespace}{" "}{.metadata.name}{"\n"}{end}`)
	errs = append(errs, err)
	for line := range strings.Lines(pods) {
		namespace, pod, _ := strings.Cut(strings.TrimSpace(line), " ")
		name := filepath.Join(folder, "pods", namespace+"_"+pod)
		args := []string{"--namespace", namespace, "logs", pod, "--all-containers", "--timestamps"}
		out, err := l.Kubectl(ctx, args...)
		errs = append(errs, err, writeFile(name+".log", []byte(out)))
		// A container that never restarted has none.
		if out, err := l.Kubectl(ctx, append(args, "--previous")...); err == nil {
			errs = append(errs, writeFile(name+".previous.log", []byte(out)))
		}
	}
	return errors.Join(errs...)
}
