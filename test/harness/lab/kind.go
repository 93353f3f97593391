package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/image"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// kindCluster is a management cluster that kind creates, with one node.
type kindCluster struct {
	lab *Lab
}

// node returns the node of the cluster. kind names it after the cluster.
func (c kindCluster) node() *engine.Host {
	return c.lab.engine.Host(c.lab.managementName+"-control-plane", hostAddress(c.lab.options.Subnet, c.lab.managementNumber))
}

// existingHosts returns all hosts of the lab that exist, on or off, with kind's node.
func (c kindCluster) existingHosts(ctx context.Context) ([]*engine.Host, error) {
	hosts, err := c.lab.engine.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	node := c.node()
	exists, err := node.Exists(ctx)
	if err != nil || !exists {
		return hosts, err
	}
	return append(hosts, node), nil
}

// networkFlags returns the flags of docker network create for the lab's network. kind has Docker choose the address of
// its node: there is only that of the management cluster to choose.
func (c kindCluster) networkFlags() []string {
	if c.lab.options.Management != ManagementKind {
		return nil
	}
	return []string{"--gateway", c.lab.MachineAddress(), "--ip-range", c.node().Address + "/32"}
}

// prepareRuntime gives Docker a runtime for kind's node, which is a privileged container, if this machine withholds
// capabilities.
func (c kindCluster) prepareRuntime(ctx context.Context) error {
	if c.lab.options.Management != ManagementKind {
		return nil
	}
	missing, err := engine.MissingCapabilities()
	if err != nil || len(missing) == 0 {
		return err
	}
	c.lab.engine.Runtime, err = c.lab.sources.images.Build(ctx, image.Program{Package: "./test/harness/lab/runtime"})
	return err
}

// name returns the name of the cluster.
func (c kindCluster) name() string { return c.lab.options.Name + "-" + c.lab.managementName }

// kind runs kind with standard input.
func (c kindCluster) kind(ctx context.Context, stdin string, args ...string) (string, error) {
	tools, err := toolset.Select("kind")
	if err != nil {
		return "", err
	}
	folder, err := c.lab.builder.Folder(ctx, tools...)
	if err != nil {
		return "", fmt.Errorf("building kind: %w", err)
	}
	return shell.Command{
		Args:  append([]string{filepath.Join(folder, "kind")}, args...),
		Env:   []string{"KIND_EXPERIMENTAL_PROVIDER=docker", "KIND_EXPERIMENTAL_DOCKER_NETWORK=" + c.lab.options.Name},
		Stdin: strings.NewReader(stdin),
	}.Run(ctx)
}

func (c kindCluster) start(ctx context.Context) (string, error) {
	node := c.node()
	complete, err := c.startExisting(ctx, node)
	if err != nil {
		return "", err
	}
	if !complete {
		if err := c.create(ctx, node); err != nil {
			return "", err
		}
	}
	return c.kind(ctx, "", "get", "kubeconfig", "--name", c.name())
}

// startExisting turns the node on if it exists, and reports whether create has completed: it puts the file last.
func (c kindCluster) startExisting(ctx context.Context, node *engine.Host) (complete bool, err error) {
	exists, err := node.Exists(ctx)
	if err != nil || !exists {
		return false, err
	}
	if err := node.Start(ctx); err != nil {
		return false, err
	}
	_, err = node.Exec(ctx, "test", "-e", podNetworkFile)
	return err == nil, nil
}

// create has kind create the cluster, and gives its node the pod network of a lab host. It removes a node that remains
// of an earlier attempt, because kind does not continue.
func (c kindCluster) create(ctx context.Context, node *engine.Host) error {
	nodeImage, err := c.lab.sources.images.KindNode(ctx)
	if err != nil {
		return fmt.Errorf("making the image of kind's node: %w", err)
	}
	if err := node.Remove(ctx); err != nil {
		return err
	}
	// kind would change the user's own kubeconfig otherwise.
	unused := filepath.Join(c.lab.options.State, "kind.kubeconfig")
	_, err = c.kind(ctx, kindConfig(), "create", "cluster", "--name", c.name(), "--image", nodeImage, "--kubeconfig", unused, "--config", "-")
	if err != nil {
		return err
	}
	if err := node.Put(ctx, networkFiles(c.lab.options.Subnet, c.lab.managementNumber)...); err != nil {
		return err
	}
	_, err = node.Exec(ctx, "systemctl", "restart", "lab-network.service")
	return err
}

// kindConfig returns the configuration of kind's cluster. The settings of the kubelet are those of lab hosts: systemd's
// cgroup driver and the defaults for cgroup v1 and for the disk would not suit a machine that others share. etcd does
// not wait for the disk, see kubeadmConfig.
func kindConfig() string {
	return `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  disableDefaultCNI: true
  podSubnet: ` + PodSubnet + `
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  cgroupDriver: cgroupfs
  failCgroupV1: false
  localStorageCapacityIsolation: false
- |
  kind: ClusterConfiguration
  etcd:
    local:
      extraArgs:
      - {name: unsafe-no-fsync, value: "true"}
`
}

func (c kindCluster) load(ctx context.Context, archive string) error {
	_, err := c.kind(ctx, "", "load", "image-archive", archive, "--name", c.name())
	return err
}
