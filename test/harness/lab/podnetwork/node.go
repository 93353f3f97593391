package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Node connects the Pods of one node.
type Node struct {
	// Name is the node's.
	Name string
	// Root is where the root folder of the host is.
	Root string
	// Client lists Nodes.
	Client client.Reader
}

// Connect writes the routes to the Pods of other nodes and the configuration of CNI plugins. It
// fails as long as the node has no network for its Pods.
func (n Node) Connect(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := n.Client.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	own := ""
	for _, node := range nodes.Items {
		if node.Name == n.Name {
			own = node.Spec.PodCIDR
			continue
		}
		address := internalAddress(node)
		if node.Spec.PodCIDR == "" || address == "" {
			continue
		}
		cmd := exec.CommandContext(ctx, "/sbin/ip", "route", "replace", node.Spec.PodCIDR, "via", address)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: n.Root}
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("adding the route to the Pods of %s: %w: %s", node.Name, err, out)
		}
	}
	if own == "" {
		return errors.New("the Node has no network for Pods yet")
	}
	file := filepath.Join(n.Root, ConfigFolder, "10-lab.conflist")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making the folder for network plugins: %w", err)
	}
	// The kubelet must not read half of it.
	if err := os.WriteFile(file+".new", Config(own), 0o644); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return os.Rename(file+".new", file)
}

// internalAddress returns the address of a Node in the network of hosts, or "".
func internalAddress(node corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}
