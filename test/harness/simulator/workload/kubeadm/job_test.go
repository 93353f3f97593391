package kubeadm_test

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/kubeadm"
)

const initConfiguration = `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: 127.1.2.3:6443
networking: {dnsDomain: x.local}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 127.1.2.4, bindPort: 7443}
nodeRegistration:
  name: "{{ ds.meta_data.local_hostname }}"
  taints: []
  kubeletExtraArgs:
  - {name: node-labels, value: "a=b,c="}
`

const joinConfiguration = `apiVersion: kubeadm.k8s.io/v1beta3
kind: JoinConfiguration
discovery: {bootstrapToken: {token: a.b, apiServerEndpoint: "127.1.2.3:6443", caCertHashes: ["sha256:x"]}}
nodeRegistration:
  kubeletExtraArgs: {node-labels: "a=b"}
  taints: [{key: k, effect: NoSchedule}]
`

func data(call, name, content string) string {
	return "## template: jinja\n#cloud-config\nwrite_files:\n- path: " + name + "\n  content: |\n    " +
		strings.ReplaceAll(content, "\n", "\n    ") + "\nruncmd:\n- echo kubeadm\n- '" + call + "'\n"
}

func TestInit(t *testing.T) {
	g := NewWithT(t)
	job, err := kubeadm.Read([]byte(data("kubeadm init --config /k.yaml  && echo", "/k.yaml", initConfiguration)), "cloud-config", "id", "box")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(job.Join).To(BeNil())
	g.Expect(job.Init.Node).To(Equal(kubeadm.Node{Name: "box", Labels: map[string]string{"a": "b", "c": ""}, Taints: []corev1.Taint{}}))
	g.Expect(job.Init.Local).To(Equal(kubeadm.Local{Advertised: netip.MustParseAddr("127.1.2.4"), Port: 7443}))
	g.Expect(job.Init.Cluster.ControlPlaneEndpoint).To(Equal("127.1.2.3:6443"))
	g.Expect(job.Init.Cluster.KubernetesVersion).To(Equal("v1.36.3"))
	g.Expect(job.Init.Cluster.Networking.DNSDomain).To(Equal("x.local"))
	g.Expect(string(job.Init.Cluster.Text)).To(And(ContainSubstring("kind: ClusterConfiguration"), Not(ContainSubstring("InitConfiguration"))))
	content, err := job.File("/k.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content).NotTo(BeEmpty())
	_, err = job.File("/other")
	g.Expect(err).To(MatchError(ContainSubstring("/other")))
}

func TestJoin(t *testing.T) {
	g := NewWithT(t)
	call := "kubeadm join --config /k.yaml"
	job, err := kubeadm.Read([]byte(data(call, "/k.yaml", joinConfiguration)), "", "id", "box")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(job.Init).To(BeNil())
	g.Expect(job.Join).To(Equal(&kubeadm.Join{
		Node:     kubeadm.Node{Name: "box", Labels: map[string]string{"a": "b"}, Taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}},
		Endpoint: "127.1.2.3:6443", Token: "a.b", Hashes: []string{"sha256:x"},
	}))
	job, err = kubeadm.Read([]byte(data(call, "/k.yaml", joinConfiguration+"controlPlane: {}\n")), "", "id", "box")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(job.Join.Local).To(Equal(&kubeadm.Local{Port: 6443}))
}

// Ignition data calls kubeadm in a script.
func TestIgnition(t *testing.T) {
	g := NewWithT(t)
	file := func(path, content string) map[string]any {
		return map[string]any{"filesystem": "root", "path": path, "mode": 0o600, "contents": map[string]any{"source": "data:," + url.PathEscape(content)}}
	}
	text, err := json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "2.3.0"},
		"storage": map[string]any{"files": []any{
			file("/etc/kubeadm.sh", "#!/bin/bash\nset -e\nkubeadm join --config /etc/kubeadm.yml\n"), file("/etc/kubeadm.yml", joinConfiguration),
		}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	job, err := kubeadm.Read(text, "ignition", "id", "box")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(job.Join.Token).To(Equal("a.b"))
}

func TestRefused(t *testing.T) {
	join := "kubeadm join --config /k.yaml"
	for name, tc := range map[string]struct{ data, want string }{
		"no document":      {"nonsense", "reading the bootstrap data"},
		"no kubeadm":       {data("k3s server", "/k.yaml", ""), "neither kubeadm init nor kubeadm join"},
		"a comment":        {data("# kubeadm join --config /k.yaml", "/k.yaml", ""), "neither kubeadm init nor kubeadm join"},
		"no configuration": {data(join, "/other", ""), "/k.yaml, which the bootstrap data does not hold"},
		"no YAML":          {data(join, "/k.yaml", "a: b: c"), "parsing YAML"},
		"the other kind":   {data(join, "/k.yaml", initConfiguration), "it has no JoinConfiguration"},
		"a file to find it": {data(join, "/k.yaml", "kind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\n"),
			"by an endpoint, a token and a CA hash"},
		"no endpoint": {data("kubeadm init --config /k.yaml", "/k.yaml", strings.Replace(initConfiguration, "controlPlaneEndpoint", "x", 1)),
			"no controlPlaneEndpoint"},
		"no version": {data("kubeadm init --config /k.yaml", "/k.yaml", strings.Replace(initConfiguration, "kubernetesVersion", "x", 1)),
			"no kubernetesVersion"},
		"no address": {data("kubeadm init --config /k.yaml", "/k.yaml", strings.Replace(initConfiguration, "127.1.2.4", "x", 1)),
			"localAPIEndpoint"},
		"no arguments": {data(join, "/k.yaml", strings.Replace(joinConfiguration, `{node-labels: "a=b"}`, "7", 1)), "kubeletExtraArgs"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kubeadm.Read([]byte(tc.data), "cloud-config", "id", "box")
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.want)))
		})
	}
}
