package image

import (
	"context"
	"fmt"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubevip"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// Release is a version of Kubernetes that the lab can build: the tool set that pins it.
type Release string

// Releases of Kubernetes.
const (
	// Current is the version of lab hosts.
	Current Release = "kubernetes"
	// Previous is the version that upgrades begin with.
	Previous Release = "kubernetes-previous"
)

// kubernetes is what a host with a release of Kubernetes is made of.
type kubernetes struct {
	// version is the release's, such as v1.36.3.
	version string
	// tools is the folder of its programs, with containerd's and the network plugins.
	tools string
	// names are the images that its kubeadm uses, by the last part of their name, such as
	// "pause".
	names map[string]string
	// images is the archive of these images.
	images string
	// extraImages is an archive with further images of a bundle, also of the same names for one
	// with a Defect; empty for none.
	extraImages string
	// system is the tar file of the Debian that hosts have.
	system string
}

// kubernetes builds the programs and the images of a release, as far as they are missing.
func (b Builder) kubernetes(ctx context.Context, release Release) (kubernetes, error) {
	k, err := b.programs(ctx, release)
	if err != nil {
		return kubernetes{}, err
	}
	system, proxy, err := b.rootfs(ctx)
	if err != nil {
		return kubernetes{}, err
	}
	k.system = system
	if k.names, err = imageNames(ctx, k); err != nil {
		return kubernetes{}, err
	}
	k.names["kube-vip"] = kubevip.DefaultImage
	own := map[string]string{}
	for _, name := range []string{"pause", "kubeproxy"} {
		if own[name], err = b.Build(ctx, Program{Package: "./test/harness/lab/" + name}); err != nil {
			return kubernetes{}, err
		}
	}
	workloads, err := workloads(k.names, own, k.tools, proxy)
	if err != nil {
		return kubernetes{}, err
	}
	if k.images, err = b.Archive("workloads", workloads...); err != nil {
		return kubernetes{}, fmt.Errorf("packing the images of Kubernetes: %w", err)
	}
	return k, nil
}

// programs builds the programs of a release's hosts and images.
func (b Builder) programs(ctx context.Context, release Release) (kubernetes, error) {
	names := append([]string{string(release), "containerd", "ctr", "containerd-shim-runc-v2", "etcd", "etcdutl", "coredns", "kube-vip"}, networkPlugins()...)
	tools, err := toolset.Select(names...)
	if err != nil {
		return kubernetes{}, err
	}
	folder, err := b.Tools.Folder(ctx, tools...)
	if err != nil {
		return kubernetes{}, fmt.Errorf("building the programs of hosts: %w", err)
	}
	version, err := kubeadmVersion(ctx, folder)
	return kubernetes{version: version, tools: folder}, err
}

// nodePrograms are the programs in a host's PATH, without kubeadm, which has a wrapper.
func nodePrograms() []string {
	return []string{"kubelet", "kubectl", "containerd", "containerd-shim-runc-v2", "ctr", "etcdutl"}
}

// networkPlugins are the CNI plugins of a host.
func networkPlugins() []string { return []string{"bridge", "host-local", "loopback", "portmap"} }
