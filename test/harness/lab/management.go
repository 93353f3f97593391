package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// management is the cluster in which Cluster API runs.
type management interface {
	// start creates the cluster, unless it exists, and returns its kubeconfig.
	start(ctx context.Context) (kubeconfig string, err error)
	// load imports an archive of images, so that the cluster's pods can use them.
	load(ctx context.Context, archive string) error
}

// Management returns the host that is the management cluster. With kind this is kind's node.
func (l *Lab) Management() *engine.Host {
	if l.options.Management == ManagementKind {
		return kindCluster{l}.node()
	}
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
