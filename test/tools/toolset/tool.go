package toolset

import (
	"fmt"
	"slices"
	"strings"
)

// Tool is one program and how it is built.
type Tool struct {
	// Name is the file name of the program.
	Name string
	// Set is the folder of the module that pins it.
	Set string
	// Package is the import path of its main package.
	Package string
	// Module is the required module whose version is stamped into the program; empty for none.
	Module string
	// Stamp holds the linker variables set to the version: an import path with the variables gitVersion, gitMajor
	// and gitMinor.
	Stamp string
	// Tags are build tags.
	Tags string
	// C says that a part is in C. The program is still linked statically, but needs a C compiler.
	C bool
}

// previous is the tool set of the Kubernetes that upgrades begin with. Its programs have the names of those of the
// newer version, so only the name of the set selects them.
const previous = "kubernetes-previous"

// Tools returns every tool, in build order.
func Tools() []Tool {
	const (
		k8s  = "k8s.io/kubernetes"
		capi = "sigs.k8s.io/cluster-api"
		ctrd = "github.com/containerd/containerd/v2"
		cni  = "github.com/containernetworking/plugins/plugins"
		// Snapshotters that need devices which test hosts lack.
		ctrdTags = "no_btrfs no_devmapper no_zfs"

		flannel = "github.com/flannel-io/flannel"
		// The resolvers of glibc can't be linked statically.
		flannelTags = "netgo osusergo"

		prometheus = "github.com/prometheus/prometheus"
		// Tests name what is scraped in a file.
		prometheusTags = "remove_all_sd"
	)
	tools := []Tool{
		{Name: "etcd", Set: "etcd", Package: "go.etcd.io/etcd/server/v3"},
		{Name: "etcdctl", Set: "etcd", Package: "go.etcd.io/etcd/etcdctl/v3"},
		{Name: "etcdutl", Set: "etcd", Package: "go.etcd.io/etcd/etcdutl/v3"},
	}
	for _, set := range []string{"kubernetes", previous} {
		for _, name := range []string{
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubeadm", "kubectl", "kubelet",
		} {
			tools = append(tools, Tool{
				Name: name, Set: set, Package: k8s + "/cmd/" + name, Module: k8s, Stamp: "k8s.io/component-base/version",
			})
		}
	}
	for _, t := range []struct{ name, pkg string }{
		{"capi-core", "core"},
		{"capi-kubeadm-bootstrap", "bootstrap/kubeadm"},
		{"capi-kubeadm-control-plane", "controlplane/kubeadm"},
		{"clusterctl", "cmd/clusterctl"},
	} {
		tools = append(tools, Tool{
			Name: t.name, Set: "cluster-api", Package: capi + "/" + t.pkg, Module: capi, Stamp: capi + "/version",
		})
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		tools = append(tools, Tool{Name: name, Set: "containerd", Package: ctrd + "/cmd/" + name, Module: ctrd, Tags: ctrdTags})
	}
	for _, name := range []string{"main/bridge", "ipam/host-local", "main/loopback", "meta/portmap"} {
		tools = append(tools, Tool{
			Name: name[strings.LastIndex(name, "/")+1:], Set: "containerd", Package: cni + "/" + name,
		})
	}
	return append(tools,
		Tool{Name: "coredns", Set: "coredns", Package: "github.com/coredns/coredns"},
		Tool{Name: "flanneld", Set: "flannel", Package: flannel, Tags: flannelTags, C: true},
		Tool{Name: "install-conf", Set: "flannel", Package: flannel + "/cmd/install_conf"},
		// The last release of the CNI plugins that has the one of flannel.
		Tool{Name: "flannel", Set: "flannel-cni", Package: cni + "/meta/flannel"},
		Tool{Name: "kind", Set: "kind", Package: "sigs.k8s.io/kind"},
		Tool{Name: "kube-vip", Set: "kube-vip", Package: "github.com/kube-vip/kube-vip"},
		Tool{Name: "promtool", Set: "prometheus", Package: prometheus + "/cmd/promtool", Tags: prometheusTags},
		Tool{Name: "prometheus", Set: "prometheus", Package: prometheus + "/cmd/prometheus", Tags: prometheusTags},
		Tool{Name: "registry", Set: "registry", Package: "github.com/distribution/distribution/v3/cmd/registry"},
		Tool{Name: "versitygw", Set: "versitygw", Package: "github.com/versity/versitygw/cmd/versitygw"})
}

// Select returns the tools with the given names, without repetition and in build order. A name is that of a tool, of a tool
// set, or "all", which is all but the previous version of Kubernetes. A tool takes precedence, so "etcd" and "containerd"
// are one program each.
func Select(names ...string) ([]Tool, error) {
	all := Tools()
	wanted := map[Tool]bool{}
	for _, name := range names {
		matches := slices.DeleteFunc(slices.Clone(all), func(t Tool) bool { return t.Name != name || t.Set == previous })
		if len(matches) == 0 {
			matches = slices.DeleteFunc(slices.Clone(all), func(t Tool) bool {
				return t.Set != name && (name != "all" || t.Set == previous)
			})
		}
		if len(matches) == 0 {
			return nil, fmt.Errorf("no tool or tool set is named %q; there are %s", name, strings.Join(Names(), ", "))
		}
		for _, t := range matches {
			wanted[t] = true
		}
	}
	return slices.DeleteFunc(all, func(t Tool) bool { return !wanted[t] }), nil
}

// Names returns what Select accepts.
func Names() []string {
	names := []string{"all"}
	for _, t := range Tools() {
		for _, name := range []string{t.Set, t.Name} {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// ldflags returns the linker flags for a tool whose module is required in version ("v1.36.3").
func (t Tool) ldflags(version string) (string, error) {
	flags := "-s -w"
	if t.C {
		flags += " -linkmode external -extldflags -static"
	}
	if t.Stamp == "" {
		return flags, nil
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("version %q of %s is not vMAJOR.MINOR.PATCH", version, t.Module)
	}
	for _, v := range [][2]string{
		{"gitVersion", version}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]}, {"gitTreeState", "clean"},
	} {
		flags += fmt.Sprintf(" -X %s.%s=%s", t.Stamp, v[0], v[1])
	}
	return flags, nil
}

// requiredVersion returns the version of module that the go.mod text requires.
func requiredVersion(gomod, module string) (string, error) {
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("module %s is not required", module)
}
