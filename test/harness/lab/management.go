package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// management is the cluster in which Cluster API runs.
type management interface {
	// start creates the cluster, unless it exists, and returns its kubeconfig.
	start(ctx context.Context) (kubeconfig string, err error)
	// load imports an archive of images, so that the cluster's pods can use them.
	load(ctx context.Context, archive string) error
	// address returns the address of the cluster's node ports for the hosts.
	address(ctx context.Context) (string, error)
	// remove removes the cluster if it exists.
	remove(ctx context.Context) error
}

// Management returns the host that is the management cluster. It does not exist with kind.
func (l *Lab) Management() *engine.Host {
	return l.engine.Host(l.managementName, hostAddress(l.options.Subnet, l.managementNumber))
}

// hostCluster is a management cluster on a single lab host.
type hostCluster struct {
	lab   *Lab
	image string
}

func (c hostCluster) start(ctx context.Context) (string, error) {
	host := c.lab.Management()
	if err := c.lab.startHost(ctx, host, c.lab.managementNumber, c.image); err != nil {
		return "", err
	}
	if _, err := host.Exec(ctx, "test", "-e", "/etc/kubernetes/admin.conf"); err != nil {
		version, err := host.Exec(ctx, "kubeadm", "version", "--output", "short")
		if err != nil {
			return "", fmt.Errorf("asking kubeadm for its version: %w", err)
		}
		config := engine.File{Path: "/etc/kubeadm.yaml", Mode: 0o600, Content: []byte(kubeadmConfig(host.Address, version))}
		if err := host.Put(ctx, config); err != nil {
			return "", err
		}
		if _, err := host.Exec(ctx, "kubeadm", "init", "--config", config.Path); err != nil {
			return "", fmt.Errorf("running kubeadm init: %w", err)
		}
	}
	return host.Exec(ctx, "cat", "/etc/kubernetes/admin.conf")
}

// kubeadmConfig returns the kubeadm configuration of a single-node cluster whose node also runs
// pods. Its etcd does not wait for the disk, as in kind: the power of this cluster is never cut,
// and managers lose their leases while other programs keep the machine's disk busy.
func kubeadmConfig(address, version string) string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: %[1]s
nodeRegistration:
  criSocket: unix:///run/containerd/containerd.sock
  taints: []
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: management
kubernetesVersion: %[2]s
controlPlaneEndpoint: %[1]s:6443
etcd:
  local:
    extraArgs:
    - {name: unsafe-no-fsync, value: "true"}
networking:
  podSubnet: %[3]s
`, address, version, PodSubnet)
}

func (c hostCluster) load(ctx context.Context, archive string) error {
	// The folder of an archive is named after its content.
	loaded := "/var/lib/lab-loaded/" + filepath.Base(filepath.Dir(archive))
	if _, err := c.lab.Management().Exec(ctx, "test", "-e", loaded); err == nil {
		return nil
	}
	in, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("opening the images: %w", err)
	}
	defer func() { _ = in.Close() }()
	_, err = c.lab.Management().ExecInput(ctx, in, "ctr", "--namespace", "k8s.io", "images", "import",
		"--local", "--discard-unpacked-layers", "-")
	if err != nil {
		return fmt.Errorf("loading images: %w", err)
	}
	return c.lab.Management().Put(ctx, engine.File{Path: loaded, Mode: 0o644})
}

func (c hostCluster) address(context.Context) (string, error) { return c.lab.Management().Address, nil }

// remove does nothing, because the host is removed with the other hosts.
func (c hostCluster) remove(context.Context) error { return nil }

// kindCluster is a management cluster that kind creates. The program kind must be in PATH.
type kindCluster struct {
	lab *Lab
}

func (c kindCluster) kind(ctx context.Context, args ...string) (string, error) {
	return shell.Command{
		Args: append([]string{"kind"}, args...),
		Env:  []string{"KIND_EXPERIMENTAL_DOCKER_NETWORK=" + c.lab.options.Name},
	}.Run(ctx)
}

func (c kindCluster) name() string { return c.lab.options.Name }

func (c kindCluster) start(ctx context.Context) (string, error) {
	clusters, err := c.kind(ctx, "get", "clusters")
	if err != nil {
		return "", err
	}
	if !containsLine(clusters, c.name()) {
		// kind would change the user's own kubeconfig otherwise.
		unused := filepath.Join(c.lab.options.State, "kind.kubeconfig")
		if _, err := c.kind(ctx, "create", "cluster", "--name", c.name(), "--kubeconfig", unused, "--wait", "5m"); err != nil {
			return "", err
		}
	}
	return c.kind(ctx, "get", "kubeconfig", "--name", c.name())
}

func (c kindCluster) load(ctx context.Context, archive string) error {
	_, err := c.kind(ctx, "load", "image-archive", archive, "--name", c.name())
	return err
}

func (c kindCluster) address(ctx context.Context) (string, error) {
	format := `{{(index .NetworkSettings.Networks "` + c.lab.options.Name + `").IPAddress}}`
	address, err := c.lab.engine.Docker(ctx, "inspect", "--format", format, c.name()+"-control-plane")
	if err != nil {
		return "", fmt.Errorf("finding kind's address: %w", err)
	}
	return address, nil
}

func (c kindCluster) remove(ctx context.Context) error {
	_, err := c.kind(ctx, "delete", "cluster", "--name", c.name())
	return err
}

// logs collects the logs of the cluster's pods and node.
func (c kindCluster) logs(ctx context.Context, folder string) error {
	_, err := c.kind(ctx, "export", "logs", filepath.Join(folder, "kind"), "--name", c.name())
	return err
}

func containsLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) == line {
			return true
		}
	}
	return false
}

// management returns the management cluster that the options select.
func (l *Lab) management(hostImage string) management {
	if l.options.Management == ManagementKind {
		return kindCluster{lab: l}
	}
	return hostCluster{lab: l, image: hostImage}
}

// startManagement creates the management cluster, unless it exists, and waits for its node.
func (l *Lab) startManagement(ctx context.Context, cluster management) error {
	kubeconfig, err := cluster.start(ctx)
	if err != nil {
		return fmt.Errorf("making the management cluster: %w", err)
	}
	if err := os.WriteFile(l.Kubeconfig(), []byte(kubeconfig), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	// A lab whose machine was switched off is started again: its API server takes a
	// while, and kubectl waits for objects, not for a server.
	starting, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err = poll(starting, time.Second, func() (string, bool) {
		_, err := l.Kubectl(starting, "get", "--raw", "/readyz")
		return fmt.Sprint(err), err == nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server: %w", err)
	}
	_, err = l.Kubectl(ctx, "wait", "node", "--all", "--for", "condition=Ready", "--timeout", "3m")
	if err != nil {
		return fmt.Errorf("waiting for the node: %w", err)
	}
	return nil
}
