package inplace_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/inplace"
)

const withGate = `{"clusterConfiguration":{"featureGates":{"ControlPlaneKubeletLocalMode":true}},"joinConfiguration":{"nodeRegistration":{"name":"n"}}}`

// change returns a change from v1.35.4 to v1.36.3 as KubeadmControlPlane makes it, for one host
// that can be upgraded.
func change(t *testing.T) *inplace.Change {
	t.Helper()
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Name: "h1", Labels: map[string]string{"site": "a"}}}
	host.Status.Inventory = &infrav1.HostInventory{Architecture: "amd64"}
	host.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"NodeUpgrade"}}
	state := func(version, bootstrap string) inplace.State {
		return inplace.State{Machine: clusterv1.MachineSpec{ClusterName: "c", Version: version}, BootstrapKind: "KubeadmConfig", Bootstrap: object(t, bootstrap)}
	}
	return &inplace.Change{
		From:  state("v1.35.4", withGate),
		To:    state("v1.36.3", `{"clusterConfiguration":{},"joinConfiguration":{"nodeRegistration":{"name":"n"}}}`),
		Hosts: []*infrav1.ElementalHost{host},
		Release: &infrav1.ElementalKubernetesRelease{
			ObjectMeta: metav1.ObjectMeta{Name: "v1.36.3"},
			Spec:       infrav1.ElementalKubernetesReleaseSpec{Version: "v1.36.3", Bundles: []infrav1.KubernetesBundle{{Architecture: "amd64"}}},
		},
		Matches: func(s *infrav1.HostSelector, h *infrav1.ElementalHost) bool {
			return s == nil || h.Labels["site"] == s.MatchLabels["site"]
		},
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("decoding %s: %v", text, err)
	}
	return out
}

// toImage makes it a change of nothing but the image, for a host with Elemental OS.
func toImage(c *inplace.Change) {
	c.From.Machine.Version, c.From.Bootstrap, c.Release = c.To.Machine.Version, c.To.Bootstrap, nil
	c.From.Infrastructure.OSImage, c.To.Infrastructure.OSImage = "oci:registry/os:1", "oci:registry/os:2"
	c.Hosts[0].Status.Agent.Capabilities = []string{"Upgrade", "NodeImage"}
}

func TestObstacle(t *testing.T) {
	site := func(value string) *infrav1.HostSelector {
		return &infrav1.HostSelector{MatchLabels: infrav1.Labels{"site": value}}
	}
	for name, tc := range map[string]struct {
		change func(*inplace.Change)
		want   string // a part of the obstacle; blank for none
	}{
		"minor version": {func(*inplace.Change) {}, ""},
		"patch version": {func(c *inplace.Change) {
			c.From.Machine.Version, c.To.Bootstrap = "v1.36.1", c.From.Bootstrap
		}, ""},
		"nothing": {func(c *inplace.Change) { c.To, c.Release = c.From, nil }, ""},
		"a lower version": {func(c *inplace.Change) {
			c.From.Machine.Version = "v1.36.4"
		}, "spec.version of the Machine: v1.36.3 is lower than v1.36.4"},
		"two minor versions": {func(c *inplace.Change) { c.From.Machine.Version = "v1.34.4" }, "v1.36.3 is more than one minor version above v1.34.4"},
		"a major version":    {func(c *inplace.Change) { c.To.Machine.Version = "v2.36.0" }, "more than one minor version above"},
		"no version":         {func(c *inplace.Change) { c.To.Machine.Version = "latest" }, `"latest" is no version`},
		"the failure domain": {func(c *inplace.Change) { c.To.Machine.FailureDomain = "z" }, "spec.failureDomain of the Machine can't be changed in place"},
		"what CAPI changes":  {func(c *inplace.Change) { c.To.Machine.MinReadySeconds = new(int32(3)) }, ""},
		"other references": {func(c *inplace.Change) {
			c.To.Machine.InfrastructureRef.Name, c.To.Machine.Bootstrap.ConfigRef.Name = "x", "y"
		}, ""},
		"a selector that the host meets": {func(c *inplace.Change) { c.To.Infrastructure.HostSelector = site("a") }, ""},
		"a selector that it does not meet": {func(c *inplace.Change) {
			c.To.Infrastructure.HostSelector = site("b")
		}, "spec.hostSelector of the ElementalMachine: host h1 does not meet it"},
		"the release policy": {func(c *inplace.Change) { c.To.Infrastructure.Release.Policy = infrav1.ReleaseHold }, ""},
		"another host":       {func(c *inplace.Change) { c.To.Infrastructure.HostName = "h2" }, "spec.hostName of the ElementalMachine can't be changed in place"},
		"the program policy": {func(c *inplace.Change) { c.To.Infrastructure.Programs = infrav1.ProgramsReplace }, "spec.programs of the ElementalMachine can't be changed in place"},
		"a file":             {func(c *inplace.Change) { c.To.Bootstrap["files"] = []any{map[string]any{"content": "secret"}} }, "spec.files of the KubeadmConfig can't be changed in place"},
		"an argument": {func(c *inplace.Change) {
			c.To.Bootstrap["joinConfiguration"] = object(t, `{"nodeRegistration":{"name":"other"}}`)
		}, "spec.joinConfiguration.nodeRegistration.name of the KubeadmConfig"},
		"patches": {func(c *inplace.Change) {
			c.From.Bootstrap = object(t, `{"joinConfiguration":{"patches":{"directory":"/etc/kubernetes/patches"}}}`)
			c.To.Bootstrap = c.From.Bootstrap
		}, ""},
		"patches that can't be passed on": {func(c *inplace.Change) {
			c.From.Bootstrap = object(t, `{"joinConfiguration":{"patches":{"directory":"patches"}}}`)
			c.To.Bootstrap = c.From.Bootstrap
		}, "spec.joinConfiguration: patches.directory of the KubeadmConfig must be an absolute path"},
		"another gate": {func(c *inplace.Change) {
			c.To.Bootstrap["clusterConfiguration"] = object(t, `{"featureGates":{"Other":true}}`)
		}, "spec.clusterConfiguration.featureGates.Other of the KubeadmConfig"},
		"the gate is still set": {func(c *inplace.Change) { c.To.Bootstrap = object(t, withGate) }, ""},
		"the gate changes its value": {func(c *inplace.Change) {
			c.To.Bootstrap = object(t, `{"clusterConfiguration":{"featureGates":{"ControlPlaneKubeletLocalMode":false}},"joinConfiguration":{"nodeRegistration":{"name":"n"}}}`)
		}, "featureGates.ControlPlaneKubeletLocalMode"},
		"the gate is removed within a minor version": {func(c *inplace.Change) { c.From.Machine.Version = "v1.36.1" }, "featureGates.ControlPlaneKubeletLocalMode"},
		"no bootstrap configuration": {func(c *inplace.Change) {
			c.From.BootstrapKind, c.To.BootstrapKind = "", ""
		}, "unknown whether kubeadm made its Node"},
		"another bootstrap provider": {func(c *inplace.Change) {
			c.From.BootstrapKind, c.To.BootstrapKind = "RKE2Config", "RKE2Config"
		}, "the bootstrap configuration is a RKE2Config"},
		"a template": {func(c *inplace.Change) {
			c.From.BootstrapKind, c.To.BootstrapKind = "KubeadmConfigTemplate", "KubeadmConfigTemplate"
		}, ""},
		"the bootstrap provider changes": {func(c *inplace.Change) { c.To.BootstrapKind = "RKE2Config" }, "kind of the bootstrap configuration"},
		"no release":                     {func(c *inplace.Change) { c.Release = nil }, "there is no ElementalKubernetesRelease v1.36.3"},
		"no bundle":                      {func(c *inplace.Change) { c.Hosts[0].Status.Inventory.Architecture = "arm64" }, "no bundle for the architecture of host h1"},
		"an old agent":                   {func(c *inplace.Change) { c.Hosts[0].Status.Agent = nil }, "the agent of host h1 can't upgrade Kubernetes"},
		"no hosts":                       {func(c *inplace.Change) { c.Hosts = nil }, ""},
		"another image":                  {toImage, ""},
		"a first image": {func(c *inplace.Change) {
			toImage(c)
			c.From.Infrastructure.OSImage = ""
		}, ""},
		"no image any more": {func(c *inplace.Change) {
			toImage(c)
			c.To.Infrastructure.OSImage, c.Hosts[0].Status.Agent = "", nil
		}, ""},
		"another image and a selector that the host meets": {func(c *inplace.Change) {
			toImage(c)
			c.To.Infrastructure.HostSelector = site("a")
		}, ""},
		"another image and a file": {func(c *inplace.Change) {
			toImage(c)
			c.To.Bootstrap = object(t, `{"files":[{"content":"secret"}]}`)
		}, "spec.files of the KubeadmConfig can't be changed in place"},
		"an image and a version": {func(c *inplace.Change) {
			c.To.Infrastructure.OSImage = "oci:registry/os:2"
		}, "spec.osImage of the ElementalMachine can't be changed in place together with the version"},
		"an image for another bootstrap provider": {func(c *inplace.Change) {
			toImage(c)
			c.From.BootstrapKind, c.To.BootstrapKind = "RKE2Config", "RKE2Config"
		}, "the bootstrap configuration is a RKE2Config"},
		"an image for another operating system": {func(c *inplace.Change) {
			toImage(c)
			c.Hosts[0].Status.Agent.Capabilities = []string{"NodeUpgrade"}
		}, "host h1 does not run Elemental OS"},
		"an image for an old agent": {func(c *inplace.Change) {
			toImage(c)
			c.Hosts[0].Status.Agent.Capabilities = []string{"Upgrade"}
		}, "the agent of host h1 can't boot another image below a Node; update the agent"},
		"a version of Elemental OS": {func(c *inplace.Change) {
			c.Release, c.Hosts[0].Status.Agent.Capabilities = nil, []string{"Upgrade", "NodeImage"}
		}, "host h1 runs Elemental OS, which has the programs of Kubernetes in its image"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := change(t)
			tc.change(c)
			got := c.Obstacle()
			if tc.want == "" {
				g.Expect(got).To(BeEmpty())
				return
			}
			g.Expect(got).To(ContainSubstring(tc.want))
			g.Expect(got).NotTo(ContainSubstring("secret"))
		})
	}
}

func TestIsMinorUpgrade(t *testing.T) {
	g := NewWithT(t)
	for _, tc := range []struct {
		from, to string
		want     bool
	}{{"v1.35.4", "v1.36.3", true}, {"v1.36.1", "v1.36.3", false}, {"", "v1.36.3", true}, {"v1.36.3", "x", true}} {
		g.Expect(inplace.IsMinorUpgrade(tc.from, tc.to)).To(Equal(tc.want), "%s to %s", tc.from, tc.to)
	}
}
