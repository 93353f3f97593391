package server_test

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// The programs of Kubernetes are written with the condition that follows from them, once.
func TestReportOfPrograms(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	prepared := func() []string {
		c := meta.FindStatusCondition(h.host(a.name).Status.Conditions, infrav1.PreparedCondition)
		return []string{string(c.Status), c.Reason, c.Message}
	}
	g.Expect(prepared()[:2]).To(Equal([]string{"Unknown", "NotReported"}), "the agent that enrolled is old")

	inventory := enrolRequest().Inventory
	report := func(writes int) {
		g.THelper()
		got := a.report(protocol.Report{Inventory: &inventory})
		g.Expect(got.status).To(Equal(http.StatusNoContent), got.body)
		g.Expect(h.writes.take()).To(HaveLen(writes))
	}
	inventory.Kubernetes = &protocol.Kubernetes{Kubelet: protocol.Program{Path: "/usr/bin/kubelet", Version: "v1.36.3", Origin: protocol.OriginPackage}}
	report(1)
	g.Expect(prepared()).To(Equal([]string{
		"False", "NotPrepared", "kubeadm is missing: install it\nA container runtime is missing: install containerd or CRI-O",
	}))
	report(0)

	inventory.Kubernetes = &protocol.Kubernetes{
		Kubelet: inventory.Kubernetes.Kubelet,
		Kubeadm: protocol.Program{Path: "/usr/bin/kubeadm", Version: "v1.36.1"},
		ContainerRuntime: protocol.ContainerRuntime{
			Name: protocol.RuntimeContainerd, Path: "/usr/bin/containerd", Version: "v2.1.4", Origin: protocol.OriginOther, Socket: "/run/containerd/containerd.sock",
		},
	}
	report(1)
	g.Expect(prepared()).To(Equal([]string{"True", "Prepared", "For Machines of Kubernetes v1.36"}))
	report(0)
	g.Expect(h.host(a.name).Status.Inventory.Kubernetes).To(Equal(&infrav1.HostKubernetes{
		Kubelet: infrav1.HostProgram{Path: "/usr/bin/kubelet", Version: "v1.36.3", Origin: infrav1.OriginPackage},
		Kubeadm: infrav1.HostProgram{Path: "/usr/bin/kubeadm", Version: "v1.36.1"},
		ContainerRuntime: infrav1.HostContainerRuntime{
			Name: infrav1.RuntimeContainerd, Path: "/usr/bin/containerd", Version: "v2.1.4", Origin: infrav1.OriginOther, Socket: "/run/containerd/containerd.sock",
		},
	}))

	// A worst case that the API server would refuse.
	inventory.Kubernetes = &protocol.Kubernetes{Kubelet: protocol.Program{Path: "kubelet", Origin: "Bundle"}, ContainerRuntime: protocol.ContainerRuntime{Name: "Docker"}}
	report(1)
	g.Expect(h.host(a.name).Status.Inventory.Kubernetes).To(Equal(&infrav1.HostKubernetes{}))

	// An older agent took the place of this one.
	inventory.Kubernetes = nil
	report(1)
	g.Expect(prepared()[:2]).To(Equal([]string{"Unknown", "NotReported"}))
}
