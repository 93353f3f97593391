package nodeupgrade

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
)

// health judges the Node and the control plane of this host.
type health struct {
	root    string
	cluster cluster.Client
}

func (r *Runner) health() health { return health{root: r.Root, cluster: r.Cluster} }

// etcd returns an error if the host has a member of etcd that is not well.
func (h health) etcd(ctx context.Context) error {
	member, found, err := etcd.Local(h.root)
	if err != nil || !found {
		return err
	}
	member.Dial = h.cluster.Dial
	return etcd.Health(ctx, member.Options)
}

// isEtcdCurrent reports whether etcd is well with the version that its manifest has. After a
// change of the manifest, the former one may still run.
func (h health) isEtcdCurrent(ctx context.Context) bool {
	member, found, err := etcd.Local(h.root)
	if err != nil || !found || h.etcd(ctx) != nil {
		return false
	}
	member.Dial = h.cluster.Dial
	version, err := etcd.Version(ctx, member.Options)
	return err == nil && staticpods.HasTag(h.root, staticpods.Etcd, version)
}

// node returns an error unless the Node is ready with a version. The kubelet itself
// is asked too: the Node of a kubelet that has just ended still looks ready.
func (h health) node(ctx context.Context, version string) error {
	if err := h.cluster.KubeletHealthy(ctx); err != nil {
		return err
	}
	node, err := h.cluster.Node(ctx)
	switch {
	case err != nil:
		return err
	case node.Version != version:
		return fmt.Errorf("the kubelet of the Node %s has %s, not %s", node.Name, node.Version, version)
	case !node.Ready:
		return fmt.Errorf("the Node %s is not ready", node.Name)
	}
	return nil
}

// controlPlane returns the version of this host's API server, and an error unless
// that, etcd and all static Pods are well, with the images of their manifests.
func (h health) controlPlane(ctx context.Context) (served string, err error) {
	served, err = h.cluster.LocalServer(ctx)
	if err != nil {
		return "", err
	}
	if err := h.etcd(ctx); err != nil {
		return "", err
	}
	wanted, err := staticpods.Read(h.root)
	if err != nil {
		return "", err
	}
	return served, h.mirrors(ctx, wanted)
}

// mirrors returns an error unless each static Pod is ready with its image.
func (h health) mirrors(ctx context.Context, wanted []staticpods.Pod) error {
	node, err := h.cluster.Node(ctx)
	if err != nil {
		return err
	}
	pods, err := h.cluster.Pods(ctx)
	if err != nil {
		return err
	}
	ready := map[string]bool{}
	for _, pod := range pods {
		if pod.Mirror && pod.Ready {
			for _, image := range pod.Images {
				ready[pod.Name+" "+image] = true
			}
		}
	}
	for _, pod := range wanted {
		if name := pod.Component + "-" + node.Name; !ready[name+" "+pod.Image] {
			return fmt.Errorf("the static Pod %s is not ready with the image %s", name, pod.Image)
		}
	}
	return nil
}
