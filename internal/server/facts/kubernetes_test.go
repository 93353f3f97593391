package facts

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestKubernetesOfAHost(t *testing.T) {
	g := NewWithT(t)
	host := &infrav1.ElementalHost{}
	report := func(in *protocol.Kubernetes) *infrav1.HostKubernetes {
		SetReported(host, &protocol.Report{Inventory: &protocol.Inventory{Kubernetes: in}}, time.Now())
		return host.Status.Inventory.Kubernetes
	}
	g.Expect(report(nil)).To(BeNil(), "an old agent does not report it")
	g.Expect(report(&protocol.Kubernetes{})).To(Equal(&infrav1.HostKubernetes{}), "a bare host has nothing, which is known")
	program := func(name string) protocol.Program {
		return protocol.Program{Path: "/usr/bin/" + name, Version: "v1.2.3", Origin: protocol.OriginPackage}
	}
	want := func(name string) infrav1.HostProgram {
		return infrav1.HostProgram{Path: "/usr/bin/" + name, Version: "v1.2.3", Origin: infrav1.OriginPackage}
	}
	g.Expect(report(&protocol.Kubernetes{
		Kubelet: program("kubelet"), Kubeadm: program("kubeadm"), Kubectl: program("kubectl"), Runc: program("runc"), CNIPlugins: program("cni"),
		ContainerRuntime: protocol.ContainerRuntime{
			Name: protocol.RuntimeCRIO, Path: "/usr/bin/crio", Version: "1.34.1", Origin: protocol.OriginBundle, Socket: "/run/crio/crio.sock",
		},
	})).To(Equal(&infrav1.HostKubernetes{
		Kubelet: want("kubelet"), Kubeadm: want("kubeadm"), Kubectl: want("kubectl"), Runc: want("runc"), CNIPlugins: want("cni"),
		ContainerRuntime: infrav1.HostContainerRuntime{
			Name: infrav1.RuntimeCRIO, Path: "/usr/bin/crio", Version: "1.34.1", Origin: infrav1.OriginBundle, Socket: "/run/crio/crio.sock",
		},
	}))
	SetReported(host, &protocol.Report{}, time.Now())
	g.Expect(host.Status.Inventory.Kubernetes.Kubelet).To(Equal(want("kubelet")), "what is not reported stays")
}

// Whatever a host reports, the API server accepts it, and messages stay one line a finding.
func TestThreat30_ProgramsAreBounded(t *testing.T) {
	g := NewWithT(t)
	for _, path := range []string{"", "kubelet", "/a b", "/a\nkubeadm is missing", "/a\u2028b", " /a", "\x00/a"} {
		g.Expect(programOf(protocol.Program{Path: path, Version: "v1"})).To(BeZero(), "%q", path)
	}
	got := programOf(protocol.Program{Path: "/" + strings.Repeat("<", 300), Version: strings.Repeat("9", 300), Origin: "Somebody"})
	g.Expect(len(got.Path)).To(BeNumerically("<=", 1+256/6))
	g.Expect(got.Version).To(HaveLen(64))
	g.Expect(got.Origin).To(BeEmpty())
	g.Expect(programOf(protocol.Program{Path: "/a\x1b[31m", Version: "v1\nv2"})).To(Equal(infrav1.HostProgram{Path: "/a[31m"}))
	g.Expect(containerRuntimeOf(protocol.ContainerRuntime{Name: "Docker", Path: "/usr/bin/docker"})).To(BeZero())
	g.Expect(containerRuntimeOf(protocol.ContainerRuntime{Name: protocol.RuntimeContainerd})).To(BeZero())
	g.Expect(containerRuntimeOf(protocol.ContainerRuntime{Name: protocol.RuntimeContainerd, Path: "/a", Socket: "a b"})).
		To(Equal(infrav1.HostContainerRuntime{Name: infrav1.RuntimeContainerd, Path: "/a"}))
}
