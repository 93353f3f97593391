package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Logs writes logs for the analysis of a failure into a folder. For each host, including the
// management cluster: the journal, the logs of its pods and the state of its services and network.
// For the management cluster: events and all objects except Secrets. It continues after errors and
// returns them together.
func (l *Lab) Logs(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the folder for logs: %w", err)
	}
	return l.progress.Step("Collecting logs in "+folder, func() error {
		hosts, err := kindCluster{l}.existingHosts(ctx)
		if err != nil {
			return err
		}
		collector := logCollector{commands: l.commands, docker: l.engine}
		errs := make([]error, len(hosts)+1)
		var group sync.WaitGroup
		for i, host := range hosts {
			group.Go(func() { errs[i] = collector.host(ctx, host, filepath.Join(folder, host.Name)) })
		}
		if l.hasManagement() {
			group.Go(func() { errs[len(hosts)] = collector.cluster(ctx, filepath.Join(folder, "management-cluster")) })
		}
		group.Wait()
		return errors.Join(errs...)
	})
}

// logCollector collects logs of hosts and of the management cluster.
type logCollector struct {
	commands *commands
	docker   *engine.Engine
}

// hostScript writes a host's logs as a tar stream. Some of its commands fail on any host, such as the listing of a folder
// that only control planes have. Of folders with certificates, keys and tokens it lists the names only.
const hostScript = `
cd "$(mktemp -d)" && trap 'rm -rf "$PWD"' EXIT
{
	for unit in elemental-agent kubelet containerd; do
		journalctl --no-pager --output short-precise --unit $unit >$unit.log
	done
	journalctl --no-pager --output short-precise --lines 20000 >journal.log
	(systemctl --no-pager list-units --all; systemctl --no-pager --failed) >services.txt
	ps -eo pid,ppid,rss,lstart,args --forest >processes.txt
	(ip address; ip route; ss -tlnp; iptables-save; nft list ruleset) >network.txt
	(cat /proc/mounts; df -h) >mounts.txt
	(ctr --namespace k8s.io containers list; ctr --namespace k8s.io tasks list) >containers.txt
	ls -laR /etc/kubernetes /etc/cni /etc/elemental /var/lib/elemental /var/lib/kubelet/pki /run/cluster-api \
		/run/kubeadm /var/lib/etcd/member/wal >files.txt
	cp --recursive --dereference /var/log/pods pods
	cp /var/log/cloud-init*.log .
} 2>/dev/null
tar --create .
`

// host collects the logs of a host. Of a host that is off, only Docker's log of its container is available.
func (l logCollector) host(ctx context.Context, host *engine.Host, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the folder for logs: %w", err)
	}
	if running, err := host.Running(ctx); err != nil || !running {
		console, logsErr := l.docker.Docker(ctx, "logs", "--timestamps", "--tail", "500", host.Container())
		return errors.Join(err, logsErr, writeFile(filepath.Join(folder, "off.log"), []byte(console)))
	}
	archive := filepath.Join(folder, "logs.tar")
	if err := l.runHostScript(ctx, host, archive); err != nil {
		return fmt.Errorf("collecting the logs of host %s: %w", host.Name, err)
	}
	if _, err := shell.Run(ctx, "tar", "--extract", "--no-same-owner", "--file", archive, "--directory", folder); err != nil {
		return fmt.Errorf("unpacking the logs of host %s: %w", host.Name, err)
	}
	return os.Remove(archive)
}

// runHostScript runs the script and writes its output into a file.
func (l logCollector) runHostScript(ctx context.Context, host *engine.Host, file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	args := []string{"docker", "exec", "--interactive", host.Container(), "sh", "-s"}
	_, err = shell.Command{Args: args, Stdin: strings.NewReader(hostScript), Stdout: out}.Run(ctx)
	return err
}

// cluster collects objects and events of the management cluster.
func (l logCollector) cluster(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	kinds, err := l.commands.Kubectl(ctx, "api-resources", "--verbs", "list", "--output", "name")
	errs := []error{err}
	for kind := range strings.FieldsSeq(kinds) {
		if !explains(kind) {
			continue
		}
		out, err := l.commands.Kubectl(ctx, "get", kind, "--all-namespaces", "--output", "yaml")
		errs = append(errs, err)
		if strings.Contains(out, "\n- apiVersion") {
			errs = append(errs, writeFile(filepath.Join(folder, kind+".yaml"), []byte(out)))
		}
	}
	out, err := l.commands.Kubectl(ctx, "get", "events", "--all-namespaces", "--sort-by", ".metadata.creationTimestamp")
	errs = append(errs, err, writeFile(filepath.Join(folder, "events.txt"), []byte(out)))
	return errors.Join(errs...)
}

// explains reports whether objects of a kind, "name.group", are collected. Secrets never are.
func explains(kind string) bool {
	name, group, _ := strings.Cut(kind, ".")
	if strings.HasSuffix(group, "cluster.x-k8s.io") || group == "apps" || group == "cert-manager.io" ||
		group == "admissionregistration.k8s.io" {
		return name != "controllerrevisions"
	}
	switch kind {
	case "nodes", "pods", "services", "configmaps", "endpointslices.discovery.k8s.io", "leases.coordination.k8s.io":
		return true
	}
	return false
}
