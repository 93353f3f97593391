package cluster_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// bare is the status of a host without programs of Kubernetes.
func bare(h *infrav1.ElementalHost) {
	h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bundle"}}
	h.Status.Inventory = &infrav1.HostInventory{Architecture: "amd64", Kubernetes: &infrav1.HostKubernetes{}}
}

// swapping is the status of a host that lacks nothing but swaps.
func swapping(h *infrav1.ElementalHost) {
	program := infrav1.HostProgram{Path: "/usr/bin/x", Version: "v1.36.3"}
	h.Status.Inventory = &infrav1.HostInventory{
		Kubernetes: &infrav1.HostKubernetes{
			Kubelet: program, Kubeadm: program, ContainerRuntime: infrav1.HostContainerRuntime{Name: infrav1.RuntimeCRIO, Path: "/usr/bin/crio"},
		},
		Preflight: &infrav1.HostPreflight{Swap: infrav1.FeatureEnabled},
	}
}

// The endpoint is no address of a host on which the first Machine's kubeadm would fail: the
// Machine could not claim another one.
func TestEndpointIsOnAPreparedHost(t *testing.T) {
	f := newFixture(t, kubeadm)
	f.controlPlane(nil)
	f.Host("h1", swapping)
	f.Host("h2", bare)
	f.reconcileUntilStable()
	f.expectCondition(no, infrav1.NoHostReason, "None of 2 hosts can be used: 2 NotPrepared")

	release := &infrav1.ElementalKubernetesRelease{ObjectMeta: f.Meta("v1.36.3")}
	release.Spec = infrav1.ElementalKubernetesReleaseSpec{Version: "v1.36.3", Bundles: []infrav1.KubernetesBundle{
		{Architecture: "amd64", SHA256: strings.Repeat("a", 64), SizeBytes: 7},
	}}
	f.Create(release)
	f.reconcileUntilStable()
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal("h2"), "the release has a bundle for it")
}

// A template says which findings its Machines ignore, for the endpoint as well.
func TestEndpointOfATemplateThatIgnoresSwap(t *testing.T) {
	f := newFixture(t, kubeadm)
	template := f.controlPlane(nil)
	template.Spec.Template.Spec.IgnoreFindings = []infrav1.FindingName{infrav1.FindingSwap}
	f.Expect(f.Admin.Update(f.Ctx, template)).To(Succeed())
	f.Host("h1", swapping)
	f.reconcileUntilStable()
	f.Expect(f.infra.Spec.ControlPlaneEndpointPolicy.HostRef.Name).To(Equal("h1"))
}
